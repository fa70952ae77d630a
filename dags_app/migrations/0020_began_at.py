from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dags_app', '0019_completed_at'),
    ]

    operations = [
        migrations.AddField(
            model_name='dag',
            name='began_at',
            field=models.DateTimeField(blank=True, help_text='when a job of it was first seen to run or to have ended', null=True),
        ),
        migrations.RunSQL(
            "UPDATE dags SET began_at = submitted_at WHERE completed_at IS NULL"
            " AND (nodes_running > 0 OR nodes_done > 0 OR nodes_failed > 0 OR units_done > 0)",
            migrations.RunSQL.noop,
        ),
    ]
