"""A site that is opened, a ban that ends: whoever waits for a site is looked at again by the next admission pass."""

from importlib import import_module

from django.db import migrations

row = import_module("requests_app.migrations.0043_admission_wakes").row


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0047_event_by_kind"), ("sites_app", "0013_owner")]

    operations = [row("sites", "status"), row("site_bans", "removed_at expires_at workflow_id")]
