"""Limits of admission bend while a slot is free; an operator may say that one does not."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0003_base_triggers")]

    operations = [
        migrations.AddField(
            "admissionlimit",
            "hard",
            models.BooleanField(
                db_default=False, default=False, help_text="holds also while slots are free; else these are lent"
            ),
        ),
    ]
