from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('wms2', '0001_base'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField(model_name='workerpool', name='desired'),
                migrations.RemoveField(model_name='workerpool', name='processes'),
            ],
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE worker_pools ALTER COLUMN desired SET DEFAULT 1',
                    'ALTER TABLE worker_pools ALTER COLUMN desired DROP DEFAULT',
                ),
            ],
        ),
        migrations.AlterField(
            model_name='resourcelease',
            name='process',
            field=models.CharField(help_text='who has it: a process of WMS2', max_length=200),
        ),
        migrations.AlterField(
            model_name='workerpool',
            name='short_since',
            field=models.DateTimeField(blank=True, help_text='no worker is alive', null=True),
        ),
    ]
