"""What operators note about a request."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0017_splitting_numbers")]

    operations = [
        migrations.AddField(
            "request", "notes", models.TextField(blank=True, default="", db_default="", help_text="what operators note about it")
        ),  # the default is for processes that do not know the column yet
    ]
