"""Columns of a request and a workflow that nothing has ever written."""

from django.db import migrations

_OF_A_REQUEST = ("parent_request", "derived_from", "derived_by", "flush", "inputs_removed_at")


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0018_note")]

    operations = [
        *(migrations.RemoveField("request", name) for name in _OF_A_REQUEST),
        migrations.RemoveField("workflow", "unmerged_frozen"),
    ]
