"""Input datasets that grow: when DBS was asked, when that brought something, when the input was closed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0003_input_parent_rses")]

    operations = [
        migrations.AddField(
            "workflow", "input_read_at", models.DateTimeField(blank=True, help_text="when DBS was last asked for new input files", null=True)
        ),
        migrations.AddField(
            "workflow", "input_grew_at", models.DateTimeField(blank=True, help_text="when that last brought any", null=True)
        ),
        migrations.AddField(
            "workflow", "input_closed_at", models.DateTimeField(blank=True, help_text="since when the input is taken as complete", null=True)
        ),
    ]
