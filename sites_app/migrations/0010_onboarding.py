"""Checks that a schedd must pass before it is enabled; those in use so far are taken as checked. Slots by pool and site."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def in_use_so_far(apps, editor):
    schedds = apps.get_model("sites_app", "Schedd").objects.exclude(state="discovered")
    schedds.update(onboarded_at=django.utils.timezone.now())


class Migration(migrations.Migration):

    dependencies = [
        ('sites_app', '0009_drains'),
    ]

    operations = [
        migrations.AddField(
            model_name='pool',
            name='answered_at',
            field=models.DateTimeField(blank=True, help_text='its collector, last', null=True),
        ),
        migrations.AddField(
            model_name='pool',
            name='jobs_idle',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='of all owners, over its schedds, as they tell the collector'),
        ),
        migrations.AddField(
            model_name='pool',
            name='jobs_running',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='pool',
            name='last_error',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='pool',
            name='silent_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='schedd',
            name='onboarded_at',
            field=models.DateTimeField(blank=True, help_text='its checks passed; without, it cannot be enabled', null=True),
        ),
        migrations.AddField(
            model_name='schedd',
            name='onboarding',
            field=models.TextField(blank=True, db_default='', help_text='why its checks have not passed'),
        ),
        migrations.AddField(
            model_name='schedd',
            name='unlisted_since',
            field=models.DateTimeField(blank=True, help_text="its pool's collector answers and names it no more; nothing is concluded from that", null=True),
        ),
        migrations.RunPython(in_use_so_far, migrations.RunPython.noop),
        migrations.CreateModel(
            name='Onboarding',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('checking', 'Checking'), ('canary', 'Canary DAG'), ('passed', 'Passed'), ('failed', 'Failed')], default='checking', max_length=20)),
                ('checks', models.JSONField(blank=True, default=list, help_text='each check with its result, time and reason')),
                ('directory', models.TextField(blank=True, help_text='of the canary; kept when it failed')),
                ('intent_at', models.DateTimeField(blank=True, help_text='the canary was or is being submitted; never again after this', null=True)),
                ('cluster', models.CharField(blank=True, max_length=50)),
                ('missing_since', models.DateTimeField(blank=True, help_text='the schedd answers, and does not know the canary', null=True)),
                ('actor', models.CharField(max_length=100)),
                ('reason', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('schedd', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='onboardings', to='sites_app.schedd')),
            ],
            options={
                'db_table': 'onboardings',
                'ordering': ('-created_at',),
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['checking', 'canary', 'passed', 'failed'])), name='onboarding_state_known'), models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('schedd',), name='one_live_onboarding')],
            },
        ),
        migrations.CreateModel(
            name='PoolSite',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('total_slots', models.PositiveIntegerField(default=0)),
                ('running_slots', models.PositiveIntegerField(default=0)),
                ('jobs_idle', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_running', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_held', models.PositiveIntegerField(db_default=0, default=0)),
                ('seen_at', models.DateTimeField(help_text='when the collector answered last')),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sites', to='sites_app.pool')),
                ('site', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pools', to='sites_app.site')),
            ],
            options={
                'db_table': 'pool_sites',
                'ordering': ('pool_id', 'site_id'),
                'constraints': [models.UniqueConstraint(fields=('pool', 'site'), name='pool_site_once')],
            },
        ),
    ]
