from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dags_app", "0021_not_packable"),
    ]

    operations = [
        migrations.AddField(
            model_name="dag",
            name="passed_priority",
            field=models.IntegerField(blank=True, help_text="what its jobs in the queue were given last", null=True),
        ),
        migrations.RunSQL(
            "UPDATE dags SET passed_priority = told.priority FROM (SELECT DISTINCT ON (dag_id) dag_id,"
            " (detail->>'priority')::int AS priority FROM dag_history WHERE event_type = 'priority_passed'"
            " ORDER BY dag_id, id DESC) told WHERE dags.id = told.dag_id AND dags.completed_at IS NULL",
            migrations.RunSQL.noop,
        ),
    ]
