"""The tables of this app when its migrations were folded into one."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('wms2', '0001_audit'), ('wms2', '0002_wakes'), ('wms2', '0003_row_counts'), ('wms2', '0004_audit_by_time'), ('wms2', '0005_workers')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('actor', models.CharField(max_length=100)),
                ('action', models.CharField(max_length=100)),
                ('target_type', models.CharField(blank=True, max_length=50)),
                ('target', models.CharField(blank=True, max_length=300)),
                ('outcome', models.CharField(default='done', help_text='done or refused', max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('evidence', models.JSONField(blank=True, default=dict)),
            ],
            options={
                'verbose_name_plural': 'audit entries',
                'db_table': 'audit_entries',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['target_type', 'target', 'id'], name='audit_by_target'), models.Index(fields=['at'], name='idx_audit_at')],
            },
        ),
        migrations.CreateModel(
            name='FailingTask',
            fields=[
                ('name', models.CharField(max_length=200, primary_key=True, serialize=False)),
                ('failures', models.PositiveIntegerField(default=1, help_text='in a row')),
                ('since', models.DateTimeField()),
                ('last_at', models.DateTimeField()),
                ('next_at', models.DateTimeField(help_text='when the schedule has it again')),
                ('last_error', models.TextField()),
                ('discarded', models.TextField(blank=True, help_text='why an operator does not want to hear of it until it has worked')),
            ],
            options={
                'db_table': 'failing_tasks',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='KeptAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identity', models.CharField(max_length=150)),
                ('key', models.CharField(max_length=200)),
                ('method', models.CharField(max_length=10)),
                ('path', models.CharField(max_length=500)),
                ('digest', models.CharField(help_text='of query and body', max_length=64)),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('body', models.JSONField(blank=True, null=True)),
                ('headers', models.JSONField(blank=True, default=dict)),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'kept_answers',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['at'], name='idx_kept_answers_at')],
                'constraints': [models.UniqueConstraint(fields=('identity', 'key'), name='answer_once_per_key')],
            },
        ),
        migrations.CreateModel(
            name='Resource',
            fields=[
                ('name', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('units', models.PositiveIntegerField()),
                ('unit', models.CharField(blank=True, help_text='what is counted', max_length=50)),
                ('reason', models.TextField(blank=True)),
            ],
            options={
                'db_table': 'resources',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='ResourceLease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('resource', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='wms2.resource')),
                ('units', models.PositiveIntegerField()),
                ('holder', models.CharField(help_text='what it is for', max_length=300)),
                ('process', models.CharField(help_text='who has it: a process of WMS2, or a user of the REST interface', max_length=200)),
                ('ttl_seconds', models.FloatField()),
                ('taken_at', models.DateTimeField()),
                ('heartbeat_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'resource_leases',
                'ordering': ('id',),
                'indexes': [models.Index(fields=['expires_at'], name='idx_resource_lease_ends')],
            },
        ),
        migrations.CreateModel(
            name='RowCount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('counted', models.CharField(help_text='the table', max_length=50)),
                ('kind', models.CharField(max_length=100)),
                ('number', models.BigIntegerField()),
            ],
            options={
                'db_table': 'row_counts',
            },
        ),
        migrations.CreateModel(
            name='Wake',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('request_id', models.UUIDField()),
                ('why', models.CharField(max_length=60)),
                ('at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'db_table': 'wakes',
                'ordering': ('id',),
                'indexes': [models.Index(fields=['request_id'], name='idx_wakes_request')],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('name', models.CharField(max_length=200, primary_key=True, serialize=False)),
                ('queues', models.JSONField(default=list, help_text='it was started for')),
                ('takes', models.JSONField(default=list, help_text='queues that it takes tasks from now')),
                ('busy', models.JSONField(default=dict, help_text='queue -> tasks that it has taken and not ended')),
                ('processes', models.JSONField(default=list, help_text='as leases and claims name them')),
                ('started_at', models.DateTimeField()),
                ('heartbeat_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'workers',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='WorkerPool',
            fields=[
                ('queue', models.CharField(max_length=50, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('starting', 'Starting'), ('running', 'Running'), ('draining', 'Draining'), ('stopped', 'Stopped'), ('evicted', 'Evicted')], default='starting', max_length=10)),
                ('desired', models.PositiveIntegerField(default=1, help_text='workers that should be alive; 0: none is missed')),
                ('processes', models.PositiveIntegerField(blank=True, help_text='of each worker; none: as it was started', null=True)),
                ('since', models.DateTimeField(auto_now_add=True, help_text='in this state')),
                ('reason', models.TextField(blank=True)),
                ('short_since', models.DateTimeField(blank=True, help_text='fewer are alive than are desired', null=True)),
                ('alerted', models.BooleanField(default=False, help_text='that they are missing was reported')),
            ],
            options={
                'db_table': 'worker_pools',
                'ordering': ('queue',),
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['starting', 'running', 'draining', 'stopped', 'evicted'])), name='worker_pool_state_known')],
            },
        ),
    ]
