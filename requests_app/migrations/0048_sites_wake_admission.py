"""A site that is opened, a ban that ends: whoever waits for a site is looked at again by the next admission pass."""

from importlib import import_module

from django.db import migrations

row = import_module("requests_app.migrations.0043_admission_wakes").row


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0047_event_by_kind"), ("sites_app", "0013_owner")]

    operations = [
        row("sites", "status status_reason status_actor drain_until"),
        row("site_bans", "removed_at expires_at workflow_id"),
        row("workflows", "config_data", new="false", old="false"),  # its site lists
        migrations.RunSQL(
            "CREATE TRIGGER requests_admission_complete AFTER UPDATE ON requests FOR EACH ROW"
            " WHEN (OLD.complete_early IS DISTINCT FROM NEW.complete_early) EXECUTE FUNCTION admission_woken()",
            "DROP TRIGGER requests_admission_complete ON requests",
        ),
    ]
