"""The tables of requests that refer to DAGs."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('requests_app', '0001_initial'), ('requests_app', '0002_input_lumis'), ('requests_app', '0003_input_parent_rses'), ('requests_app', '0004_input_growth'), ('requests_app', '0005_pileup_cache'), ('requests_app', '0006_list_indexes'), ('requests_app', '0007_search_text'), ('requests_app', '0008_search_trigrams'), ('requests_app', '0009_dataset_families'), ('requests_app', '0010_lease_process'), ('requests_app', '0011_input_locations'), ('requests_app', '0012_wanted_events'), ('requests_app', '0013_reserved_slots'), ('requests_app', '0014_audit_moved'), ('requests_app', '0015_unwritten_columns'), ('requests_app', '0016_prepared'), ('requests_app', '0017_splitting_numbers'), ('requests_app', '0018_note'), ('requests_app', '0019_unwritten'), ('requests_app', '0020_words'), ('requests_app', '0021_evaluation_leases'), ('requests_app', '0022_row_counts'), ('requests_app', '0023_kept_account'), ('requests_app', '0024_search_index'), ('requests_app', '0025_merge_groups'), ('requests_app', '0026_events_by_time'), ('requests_app', '0027_adaptive'), ('requests_app', '0028_reqmgr2'), ('requests_app', '0029_life'), ('requests_app', '0030_groups'), ('requests_app', '0031_claims_cut'), ('requests_app', '0032_clean'), ('requests_app', '0033_harvesting'), ('requests_app', '0034_derived'), ('requests_app', '0035_standing'), ('requests_app', '0036_event_feed'), ('requests_app', '0037_moving'), ('requests_app', '0038_dead_letters'), ('requests_app', '0039_admission'), ('requests_app', '0040_progress'), ('requests_app', '0041_reconcile'), ('requests_app', '0042_progress_goes'), ('requests_app', '0043_admission_wakes'), ('requests_app', '0044_queue_indexes'), ('requests_app', '0045_words_for_people'), ('requests_app', '0046_odd_lumis'), ('requests_app', '0047_event_by_kind'), ('requests_app', '0048_sites_wake_admission'), ('requests_app', '0049_failed_elsewhere')]

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
