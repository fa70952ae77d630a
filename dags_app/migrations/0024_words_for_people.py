"""Labels that do not claim more than is stored, and the names of rows of a DAG's history."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dags_app', '0023_single_indexes'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='daghistory',
            options={'ordering': ('id',), 'verbose_name': 'DAG history entry', 'verbose_name_plural': 'DAG history entries'},
        ),
        migrations.AlterField(
            model_name='workunit',
            name='state',
            field=models.CharField(choices=[('planned', 'Planned or running'), ('done_unaccounted', 'Done, unaccounted'), ('done', 'Done'), ('failed', 'Failed'), ('abandoned', 'Abandoned')], default='planned', max_length=20),
        ),
    ]
