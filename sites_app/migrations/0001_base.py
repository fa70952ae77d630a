"""The tables of this app when its migrations were folded into one."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ("sites_app", "0001_initial"),
        ("sites_app", "0002_names"),
        ("sites_app", "0003_lost_queues"),
        ("sites_app", "0004_strays"),
        ("sites_app", "0005_unwritten_columns"),
        ("sites_app", "0006_words"),
        ("sites_app", "0007_counted"),
        ("sites_app", "0008_pools"),
        ("sites_app", "0009_drains"),
        ("sites_app", "0010_onboarding"),
        ("sites_app", "0011_health"),
        ("sites_app", "0012_jobs_ended"),
    ]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('name', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('collector', models.CharField(help_text='host:port', max_length=255)),
                ('token_dir', models.TextField(blank=True, help_text='directory of its IDTOKENs; empty: the configured one')),
                ('file_system', models.CharField(help_text='the shared file system of its schedds: those of one name see the same DAG directories', max_length=100)),
                ('state', models.CharField(choices=[('enabled', 'Enabled'), ('disabled', 'Disabled')], default='enabled', max_length=20)),
                ('answered_at', models.DateTimeField(blank=True, help_text='its collector, last', null=True)),
                ('silent_since', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.TextField(blank=True, db_default='')),
                ('jobs_idle', models.PositiveIntegerField(db_default=0, default=0, help_text='of all owners, over its schedds, as they tell the collector')),
                ('jobs_running', models.PositiveIntegerField(db_default=0, default=0)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'pools',
                'ordering': ('name',),
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['enabled', 'disabled'])), name='pool_state_known')],
            },
        ),
        migrations.CreateModel(
            name='Schedd',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pool', models.ForeignKey(db_column='pool', on_delete=django.db.models.deletion.PROTECT, related_name='schedds', to='sites_app.pool')),
                ('name', models.CharField(max_length=255)),
                ('state', models.CharField(choices=[('discovered', 'Discovered, not yet enabled'), ('enabled', 'Enabled'), ('draining', 'Draining'), ('disabled', 'Disabled')], default='discovered', max_length=20)),
                ('max_dagman_slots', models.PositiveIntegerField(default=500, help_text='DAGMan processes it may run: outer and inner ones together')),
                ('submit_root', models.TextField(help_text="where DAG directories lie, on the schedd's file system")),
                ('version', models.CharField(blank=True, max_length=100)),
                ('job_queue_birthdate', models.BigIntegerField(blank=True, help_text='a change is evidence that the queue was lost', null=True)),
                ('last_answer_at', models.DateTimeField(blank=True, null=True)),
                ('asked_at', models.DateTimeField(blank=True, help_text='when it was last asked, whether it answered or not', null=True)),
                ('unreachable_since', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.TextField(blank=True)),
                ('collector_says', models.CharField(blank=True, help_text='while it is silent: what the collector knows of it; kept as evidence', max_length=300)),
                ('orphans', models.JSONField(blank=True, db_column='strays', default=list, help_text='jobs of ours in its queue that no live DAG knows, by the DAG they name')),
                ('orphans_asked_at', models.DateTimeField(blank=True, db_column='strays_asked_at', null=True)),
                ('drain_since', models.DateTimeField(blank=True, help_text='while it drains', null=True)),
                ('drain_actor', models.CharField(blank=True, db_default='', default='', max_length=150)),
                ('drain_reason', models.TextField(blank=True, db_default='', default='')),
                ('drain_at_once', models.PositiveIntegerField(db_default=0, default=0, help_text='so many of its DAGs are moved at a time while it drains; 0: they run to their end')),
                ('drained_at', models.DateTimeField(blank=True, help_text='since when the drain has left nothing there', null=True)),
                ('unlisted_since', models.DateTimeField(blank=True, help_text="its pool's collector answers and names it no more; nothing is concluded from that", null=True)),
                ('onboarded_at', models.DateTimeField(blank=True, help_text='its checks passed; without, it cannot be enabled', null=True)),
                ('onboarding', models.TextField(blank=True, db_default='', help_text='why its checks have not passed')),
                ('owner', models.CharField(blank=True, db_default='', default='', help_text="whose our jobs are there; others' are never ours", max_length=255)),
                ('dagmans_running', models.PositiveIntegerField(default=0)),
                ('dagmans_others', models.PositiveIntegerField(db_default=0, default=0, help_text='DAGMans that run and are not ours')),
                ('owner_dagmans', models.PositiveIntegerField(blank=True, help_text='DAGMans of one owner that it runs at most, as it says itself', null=True)),
                ('duty_cycle', models.FloatField(blank=True, help_text='0 to 1; near 1 it cannot keep up', null=True)),
                ('health', models.CharField(choices=[('healthy', 'Healthy'), ('busy', 'Busy'), ('degraded', 'Degraded'), ('unreachable', 'Unreachable')], db_default='healthy', default='healthy', max_length=20)),
                ('health_reason', models.TextField(blank=True, db_default='', default='')),
                ('health_since', models.DateTimeField(blank=True, null=True)),
                ('health_memory', models.JSONField(blank=True, db_default={}, default=dict, help_text='what the next check rests on')),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'schedds',
                'ordering': ('pool_id', 'name'),
                'base_manager_name': 'objects',
                'constraints': [models.UniqueConstraint(fields=('pool', 'name'), name='schedd_once_per_pool'), models.CheckConstraint(condition=models.Q(('state__in', ['discovered', 'enabled', 'draining', 'disabled'])), name='schedd_state_known'), models.CheckConstraint(condition=models.Q(('health__in', ['healthy', 'busy', 'degraded', 'unreachable'])), name='schedd_health_known')],
            },
        ),
        migrations.CreateModel(
            name='HealthChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('schedd', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='health_changes', to='sites_app.schedd')),
                ('at', models.DateTimeField()),
                ('old', models.CharField(choices=[('healthy', 'Healthy'), ('busy', 'Busy'), ('degraded', 'Degraded'), ('unreachable', 'Unreachable')], max_length=20)),
                ('new', models.CharField(choices=[('healthy', 'Healthy'), ('busy', 'Busy'), ('degraded', 'Degraded'), ('unreachable', 'Unreachable')], max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('signals', models.JSONField(blank=True, default=dict, help_text='of the look that decided')),
            ],
            options={
                'db_table': 'schedd_health_changes',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['schedd', '-id'], name='idx_health_changes_schedd')],
            },
        ),
        migrations.CreateModel(
            name='Onboarding',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('schedd', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='onboardings', to='sites_app.schedd')),
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
            ],
            options={
                'db_table': 'onboardings',
                'ordering': ('-created_at',),
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['checking', 'canary', 'passed', 'failed'])), name='onboarding_state_known'), models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('schedd',), name='one_live_onboarding')],
            },
        ),
        migrations.CreateModel(
            name='Site',
            fields=[
                ('name', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('enabled', 'Enabled'), ('draining', 'Draining'), ('disabled', 'Disabled'), ('maintenance', 'Maintenance')], default='enabled', max_length=50)),
                ('status_reason', models.TextField(blank=True)),
                ('status_actor', models.CharField(blank=True, help_text="who set the status; empty: CRIC's sync, which never undoes an operator's decision", max_length=100)),
                ('total_slots', models.IntegerField(default=0)),
                ('running_slots', models.IntegerField(default=0)),
                ('drain_until', models.DateTimeField(blank=True, null=True)),
                ('config_data', models.JSONField(blank=True, default=dict, help_text="operators' notes about the site")),
                ('cric_seen_at', models.DateTimeField(blank=True, null=True)),
                ('jobs_idle', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_running', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_held', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_done', models.PositiveBigIntegerField(db_default=0, default=0, help_text='processing and merge jobs of accounted work units of rounds whose DAGs are in a queue')),
                ('jobs_failed', models.PositiveBigIntegerField(db_default=0, default=0, help_text='failed attempts of rounds whose DAGs are in a queue')),
                ('jobs_counted_at', models.DateTimeField(blank=True, help_text='the oldest of the answers that they are summed over', null=True)),
                ('slots_seen_at', models.DateTimeField(blank=True, null=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'sites',
                'ordering': ('name',),
                'constraints': [models.CheckConstraint(condition=models.Q(('status__in', ['enabled', 'draining', 'disabled', 'maintenance'])), name='site_status_known')],
            },
        ),
        migrations.CreateModel(
            name='PoolSite',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sites', to='sites_app.pool')),
                ('site', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pools', to='sites_app.site')),
                ('total_slots', models.PositiveIntegerField(default=0)),
                ('running_slots', models.PositiveIntegerField(default=0)),
                ('jobs_idle', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_running', models.PositiveIntegerField(db_default=0, default=0)),
                ('jobs_held', models.PositiveIntegerField(db_default=0, default=0)),
                ('seen_at', models.DateTimeField(help_text='when the collector answered last')),
            ],
            options={
                'db_table': 'pool_sites',
                'ordering': ('pool_id', 'site_id'),
                'constraints': [models.UniqueConstraint(fields=('pool', 'site'), name='pool_site_once')],
            },
        ),
        migrations.CreateModel(
            name='QueueChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('schedd', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='queue_changes', to='sites_app.schedd')),
                ('old_birthdate', models.BigIntegerField(help_text='JobQueueBirthdate before, Unix seconds')),
                ('new_birthdate', models.BigIntegerField(help_text='JobQueueBirthdate since, Unix seconds')),
                ('old_answered_at', models.DateTimeField(blank=True, help_text='last answer with the former queue', null=True)),
                ('dagmans_before', models.PositiveIntegerField(default=0, help_text='DAGMan jobs that ran in the former queue then')),
                ('seen_at', models.DateTimeField(help_text='first answer with the other queue')),
            ],
            options={
                'db_table': 'schedd_queue_changes',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['schedd', 'seen_at'], name='idx_queue_changes_schedd')],
                'constraints': [models.CheckConstraint(condition=models.Q(('old_birthdate', models.F('new_birthdate')), _negated=True), name='queue_change_is_one')],
            },
        ),
        migrations.CreateModel(
            name='SiteRse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('site', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rses', to='sites_app.site')),
                ('rse', models.CharField(max_length=100)),
                ('seen_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'site RSE',
                'verbose_name_plural': 'site RSEs',
                'db_table': 'site_rses',
                'indexes': [models.Index(fields=['rse'], name='site_rse_by_rse')],
                'constraints': [models.UniqueConstraint(fields=('site', 'rse'), name='site_rse_once')],
            },
        ),
        migrations.CreateModel(
            name='SystemicAlert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('holds', models.BooleanField(help_text='nothing new is submitted while it lasts; otherwise nothing is done by itself')),
                ('reason', models.TextField()),
                ('began_at', models.DateTimeField()),
                ('calm_since', models.DateTimeField(blank=True, help_text='it is over when this has lasted for the window', null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'systemic_alerts',
                'ordering': ('-id',),
                'constraints': [models.UniqueConstraint(fields=('ended_at',), name='one_systemic_alert_goes_on', nulls_distinct=False)],
            },
        ),
    ]
