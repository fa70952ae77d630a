"""Columns of sites and schedds that nothing has ever written."""

from django.db import migrations, models

OF_SITES = ("collector_host", "pending_slots", "schedd_name", "storage_element", "storage_path", "thresholds")


class Migration(migrations.Migration):
    dependencies = [("sites_app", "0004_strays")]

    operations = [
        migrations.RemoveField("schedd", "max_dags"),
        *(migrations.RemoveField("site", name) for name in OF_SITES),
        migrations.AlterField(
            "site", "config_data", models.JSONField(blank=True, default=dict, help_text="operators' notes about the site")
        ),
    ]
