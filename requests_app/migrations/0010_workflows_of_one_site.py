"""Requests that can run at one site alone are found by their list of sites, which is equal to that site's."""

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("requests_app", "0009_campaigns")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY workflows_by_sites ON workflows USING hash ((config_data->'site_whitelist'))"
            " WHERE config_data->'site_whitelist' <> '[]'",
            "DROP INDEX workflows_by_sites",
        ),
    ]
