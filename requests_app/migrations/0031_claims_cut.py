"""When a workflow's claims were last cut (docs/adr/0084)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0030_groups")]

    operations = [
        migrations.AddField(
            "workflow",
            "cut_at",
            models.DateTimeField(blank=True, help_text="when work of lost files was last given back (ADR 0084)", null=True),
        ),
    ]
