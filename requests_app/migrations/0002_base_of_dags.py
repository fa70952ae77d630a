"""The tables of requests that refer to DAGs."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ("requests_app", "0048_sites_wake_admission"),
    ]

    dependencies = [
        ('dags_app', '0001_base'),
        ('requests_app', '0001_base'),
    ]

    operations = [
        migrations.CreateModel(
            name='Harvest',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('request', models.ForeignKey(db_column='request_name', on_delete=django.db.models.deletion.CASCADE, related_name='harvests', to='requests_app.request', to_field='request_name')),
                ('dataset', models.CharField(max_length=500)),
                ('run', models.BigIntegerField(default=0, help_text='0: all runs together')),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('done', 'Done'), ('failed', 'Failed'), ('discarded', 'Discarded')], default='waiting', max_length=20)),
                ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='harvests', to='dags_app.sitejob')),
                ('attempts', models.PositiveIntegerField(default=0, help_text='jobs that failed, since an operator last said retry')),
                ('next_try_at', models.DateTimeField()),
                ('uploads', models.JSONField(blank=True, default=list, help_text='name, size, md5 of each file, the server and its answer')),
                ('problem', models.TextField(blank=True, help_text='why it could not be done when that was tried last')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'harvests',
                'ordering': ('-id',),
                'indexes': [models.Index(condition=models.Q(('state__in', ('done', 'discarded')), _negated=True), fields=['state', 'next_try_at'], name='harvests_open')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'running', 'done', 'failed', 'discarded'])), name='harvest_state_known'), models.UniqueConstraint(fields=('request', 'dataset', 'run'), name='harvest_once')],
            },
        ),
    ]
