"""Jobs at sites, and what they remove (ADR 0079)."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dags_app', '0015_counted'),
        ('requests_app', '0027_adaptive'),
        ('sites_app', '0007_counted'),
    ]

    operations = [
        migrations.CreateModel(
            name='Leftover',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('site', models.CharField(max_length=100)),
                ('bases', models.JSONField(default=list, help_text='directories below which alone anything may be removed')),
                ('journals', models.JSONField(default=list, help_text='LFNs of the directories of journals, which name further files')),
                ('lfns', models.JSONField(default=list, help_text='of files that are known without a journal')),
                ('removed', models.JSONField(blank=True, default=list, help_text='LFNs of the files that were removed')),
                ('removed_files', models.PositiveIntegerField(default=0)),
                ('problem', models.TextField(blank=True, help_text='why something could not be removed when that was tried last')),
                ('tries', models.PositiveIntegerField(default=0)),
                ('next_try_at', models.DateTimeField()),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'leftovers',
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='SiteJob',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('site', models.CharField(max_length=100)),
                ('purpose', models.CharField(choices=[('remove', 'Remove files')], max_length=20)),
                ('state', models.CharField(choices=[('prepared', 'Prepared'), ('submitted', 'Submitted'), ('done', 'Done'), ('failed', 'Failed')], default='prepared', max_length=20)),
                ('directory', models.TextField(help_text='what it is given, and what it leaves; gone once that was read')),
                ('cluster', models.CharField(blank=True, max_length=50)),
                ('intent_at', models.DateTimeField(blank=True, help_text='it was or is being submitted; never again after this', null=True)),
                ('missing_since', models.DateTimeField(blank=True, help_text='the schedd answers, and does not know it', null=True)),
                ('items', models.PositiveIntegerField(default=0, help_text='what it was given to do')),
                ('result', models.JSONField(blank=True, default=dict, help_text='what it says: host, times, totals')),
                ('problem', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'site_jobs',
                'ordering': ('-created_at',),
            },
        ),
        migrations.AddField(
            model_name='dag',
            name='leftovers_at',
            field=models.DateTimeField(blank=True, help_text='of the first DAG of a directory: what is to be removed of its units was written down', null=True),
        ),
        migrations.AddIndex(
            model_name='dag',
            index=models.Index(condition=models.Q(('leftovers_at__isnull', True)), fields=['round'], name='idx_dags_leftovers'),
        ),
        migrations.AddField(
            model_name='leftover',
            name='unit',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='leftovers', to='dags_app.workunit'),
        ),
        migrations.AddField(
            model_name='sitejob',
            name='schedd',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='site_jobs', to='sites_app.schedd'),
        ),
        migrations.AddField(
            model_name='leftover',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='leftovers', to='dags_app.sitejob'),
        ),
        migrations.AddIndex(
            model_name='sitejob',
            index=models.Index(fields=['created_at'], name='site_jobs_created'),
        ),
        migrations.AddConstraint(
            model_name='sitejob',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['prepared', 'submitted', 'done', 'failed'])), name='site_job_state_known'),
        ),
        migrations.AddConstraint(
            model_name='sitejob',
            constraint=models.CheckConstraint(condition=models.Q(('purpose__in', ['remove'])), name='site_job_purpose_known'),
        ),
        migrations.AddConstraint(
            model_name='sitejob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'submitted'), _negated=True), ('intent_at__isnull', False), _connector='OR'), name='site_job_submitted_by_intent'),
        ),
        migrations.AddConstraint(
            model_name='sitejob',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('prepared', 'submitted'))), fields=('site', 'purpose'), name='one_live_job_per_site_and_purpose'),
        ),
        migrations.AddIndex(
            model_name='leftover',
            index=models.Index(condition=models.Q(('job__isnull', True), ('settled_at__isnull', True)), fields=['next_try_at'], name='leftovers_due'),
        ),
        migrations.AddIndex(
            model_name='leftover',
            index=models.Index(condition=models.Q(('settled_at__isnull', True)), fields=['site'], name='leftovers_open'),
        ),
        migrations.AddIndex(
            model_name='leftover',
            index=models.Index(condition=models.Q(('job__isnull', False)), fields=['job'], name='leftovers_by_job'),
        ),
        migrations.AddConstraint(
            model_name='leftover',
            constraint=models.UniqueConstraint(fields=('unit', 'site'), name='leftover_once_per_site'),
        ),
    ]
