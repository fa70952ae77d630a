from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sites_app", "0005_unwritten_columns"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(  # the columns keep their names
            state_operations=[
                migrations.RenameField("schedd", "strays", "orphans"),
                migrations.RenameField("schedd", "strays_asked_at", "orphans_asked_at"),
                migrations.AlterField(
                    "schedd",
                    "orphans",
                    models.JSONField(
                        blank=True,
                        db_column="strays",
                        default=list,
                        help_text="jobs of ours in its queue that no live DAG knows, by the DAG they name",
                    ),
                ),
                migrations.AlterField(
                    "schedd", "orphans_asked_at", models.DateTimeField(blank=True, db_column="strays_asked_at", null=True)
                ),
            ]
        ),
        migrations.AlterField(
            model_name="site",
            name="status_actor",
            field=models.CharField(
                blank=True,
                help_text="who set the status; empty: CRIC's sync, which never undoes an operator's decision",
                max_length=100,
            ),
        ),
    ]
