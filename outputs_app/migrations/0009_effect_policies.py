"""Discarded effects, blocks given up or without tape, where outputs go, and when source rules end (ADR 0077)."""

import django.core.validators
from django.db import migrations, models


def anything_else(apps, schema_editor):
    """What holds where operators decide nothing else: tape, and others place containers on disk."""
    apps.get_model("outputs_app", "Placement").objects.get_or_create(campaign="", tier="")


class Migration(migrations.Migration):

    dependencies = [
        ('dags_app', '0015_counted'),
        ('outputs_app', '0008_block_first_file'),
        ('requests_app', '0027_adaptive'),
    ]

    operations = [
        migrations.CreateModel(
            name='Placement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('campaign', models.CharField(blank=True, max_length=100)),
                ('tier', models.CharField(blank=True, max_length=50)),
                ('tape', models.BooleanField(default=True, help_text='whether its blocks get a tape rule')),
                ('disk_expression', models.CharField(blank=True, help_text="RSEs for the container's rule on disk; empty: others place it", max_length=500)),
                ('disk_copies', models.PositiveIntegerField(default=1, validators=[django.core.validators.MinValueValidator(1)])),
                ('disk_days', models.PositiveIntegerField(default=0, help_text='how long that rule lives; 0: for ever')),
                ('disk_activity', models.CharField(blank=True, help_text='empty: as of the other rules', max_length=100)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'placements',
                'ordering': ('campaign', 'tier'),
            },
        ),
        migrations.RemoveConstraint(
            model_name='effect',
            name='effect_state_known',
        ),
        migrations.RemoveConstraint(
            model_name='effect',
            name='effect_kind_known',
        ),
        migrations.RemoveConstraint(
            model_name='processingblock',
            name='block_status_known',
        ),
        migrations.RemoveConstraint(
            model_name='processingblock',
            name='block_archived_has_tape_rule',
        ),
        migrations.AddField(
            model_name='outputdataset',
            name='disk_rule_id',
            field=models.CharField(blank=True, help_text='of the rule on disk for its container, if WMS2 made one', max_length=100),
        ),
        migrations.AddField(
            model_name='processingblock',
            name='no_tape',
            field=models.TextField(blank=True, help_text='why it has no tape rule'),
        ),
        migrations.AddField(
            model_name='processingblock',
            name='source_rule_id',
            field=models.CharField(blank=True, help_text="of the rule that replaces its files' source rules", max_length=100),
        ),
        migrations.AddField(
            model_name='processingblock',
            name='tape_ok_at',
            field=models.DateTimeField(blank=True, help_text='when its tape rule was first seen to be OK', null=True),
        ),
        migrations.AlterField(
            model_name='effect',
            name='kind',
            field=models.CharField(choices=[('rucio_block', 'Create container and block in Rucio'), ('rucio_files', 'Register replicas and attach to the block'), ('rucio_protect', 'Protect files at their RSE'), ('rucio_block_close', 'Close block in Rucio'), ('dbs_block', 'Register block in DBS'), ('rucio_tape', 'Tape rule for the block'), ('dbs_valid', 'Make a whole dataset VALID in DBS'), ('invalidation_manifest', 'Write the list of what is to be invalidated'), ('rucio_release', 'Delete the rules of a dataset'), ('dbs_invalidate', 'Invalidate a dataset in DBS'), ('rucio_source_block', "One source rule for a block at one RSE instead of its files'"), ('rucio_disk', 'Rule on disk for the container'), ('rucio_unprotect', 'Delete the source rules of a block')], max_length=40),
        ),
        migrations.AlterField(
            model_name='effect',
            name='state',
            field=models.CharField(choices=[('pending', 'Pending'), ('claimed', 'Claimed'), ('done', 'Done'), ('refused', 'Refused'), ('dead', 'Dead'), ('discarded', 'Discarded')], default='pending', max_length=10),
        ),
        migrations.AlterField(
            model_name='processingblock',
            name='status',
            field=models.CharField(choices=[('open', 'Open'), ('complete', 'Complete'), ('archived', 'Archived'), ('failed', 'Failed'), ('given_up', 'Given up'), ('invalidated', 'Invalidated')], default='open', max_length=50),
        ),
        migrations.AddConstraint(
            model_name='effect',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'claimed', 'done', 'refused', 'dead', 'discarded'])), name='effect_state_known'),
        ),
        migrations.AddConstraint(
            model_name='effect',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['rucio_block', 'rucio_files', 'rucio_protect', 'rucio_block_close', 'dbs_block', 'rucio_tape', 'dbs_valid', 'invalidation_manifest', 'rucio_release', 'dbs_invalidate', 'rucio_source_block', 'rucio_disk', 'rucio_unprotect'])), name='effect_kind_known'),
        ),
        migrations.AddConstraint(
            model_name='processingblock',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['open', 'complete', 'archived', 'failed', 'given_up', 'invalidated'])), name='block_status_known'),
        ),
        migrations.AddConstraint(
            model_name='processingblock',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'archived'), _negated=True), models.Q(('tape_rule_id', ''), _negated=True), models.Q(('no_tape', ''), _negated=True), _connector='OR'), name='block_archived_tells_of_tape'),
        ),
        migrations.AddConstraint(
            model_name='placement',
            constraint=models.UniqueConstraint(fields=('campaign', 'tier'), name='placement_once'),
        ),
        migrations.AddConstraint(
            model_name='placement',
            constraint=models.CheckConstraint(condition=models.Q(('disk_copies__gte', 1)), name='placement_has_copies'),
        ),
        migrations.RunPython(anything_else, migrations.RunPython.noop),
    ]
