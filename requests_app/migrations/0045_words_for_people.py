"""Names of rows and help texts in words that operators know."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('requests_app', '0044_queue_indexes'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='progress',
            options={'verbose_name': 'progress summary', 'verbose_name_plural': 'progress summaries'},
        ),
        migrations.AlterModelOptions(
            name='reqmgr2request',
            options={'ordering': ('-id',), 'verbose_name': 'ReqMgr2 request', 'verbose_name_plural': 'ReqMgr2 requests'},
        ),
        migrations.AlterField(
            model_name='request',
            name='adaptive',
            field=models.BooleanField(db_default=False, default=False, help_text='runs in rounds, each sized by what those before measured'),
        ),
        migrations.AlterField(
            model_name='request',
            name='derived_from',
            field=models.OneToOneField(blank=True, db_column='derived_from', help_text='whose unused work it has taken over', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='requests_app.request', to_field='request_name'),
        ),
        migrations.AlterField(
            model_name='request',
            name='family',
            field=models.UUIDField(default=uuid.uuid4, editable=False, help_text='requests of one family may write into the same datasets'),
        ),
        migrations.AlterField(
            model_name='workflow',
            name='cut_at',
            field=models.DateTimeField(blank=True, help_text='when work of lost files was last given back', null=True),
        ),
    ]
