"""What the import of a document has found out is kept until the workflow has it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0015_unwritten_columns")]

    operations = [
        migrations.AddField(
            "request",
            "prepared",
            models.JSONField(
                blank=True, help_text="while submitted: the specification and PSets that the import has found out", null=True
            ),
        ),
    ]
