"""Trouble of one pool holds that pool alone: a systemic alert names its pool, and tells admission when it holds and ends."""

from importlib import import_module

from django.db import migrations, models

row = import_module("requests_app.migrations.0003_base_triggers").row


class Migration(migrations.Migration):
    dependencies = [("sites_app", "0002_base_bans"), ("requests_app", "0003_base_triggers")]

    operations = [
        migrations.AddField(
            "systemicalert",
            "pool",
            models.CharField(blank=True, db_default="", default="", help_text="concerned; empty: all", max_length=100),
        ),
        migrations.AlterField(
            "systemicalert",
            "holds",
            models.BooleanField(help_text="nothing new is submitted there while it lasts; otherwise nothing is done by itself"),
        ),
        migrations.RemoveConstraint("systemicalert", "one_systemic_alert_goes_on"),
        migrations.AddConstraint(
            "systemicalert",
            models.UniqueConstraint(fields=("pool", "ended_at"), name="one_systemic_alert_a_pool", nulls_distinct=False),
        ),
        row("systemic_alerts", "holds ended_at", new="NEW.holds", old="OLD.holds"),
    ]
