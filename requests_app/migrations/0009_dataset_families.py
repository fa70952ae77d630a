"""Requests get their family: one for each chain of versions, derived and grouped requests (ADR 0037)."""

import uuid

from django.db import migrations, models


def families(apps, schema_editor):
    Request = apps.get_model("requests_app", "Request")
    rows = Request.objects.values_list("pk", "request_name", "previous_version_request_id", "parent_request_id", "derived_from_id")
    known = {name: (pk, before, parent, origin) for pk, name, before, parent, origin in rows}
    names = {pk: name for name, (pk, *_) in known.items()}
    found = {}

    def family(name):
        way = []
        while name not in found and name not in way:
            way.append(name)
            _, before, parent, origin = known[name]
            name = before or names.get(parent) or names.get(origin) or name
        first = found.setdefault(name, uuid.uuid4())
        found.update(dict.fromkeys(way, first))
        return first

    for name, (pk, *_) in known.items():
        Request.objects.filter(pk=pk).update(family=family(name))


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0008_search_trigrams")]
    operations = [
        migrations.AddField("request", "family", models.UUIDField(editable=False, null=True)),
        migrations.RunPython(families, migrations.RunPython.noop),
        migrations.AlterField(
            "request",
            "family",
            models.UUIDField(
                default=uuid.uuid4,
                editable=False,
                help_text="requests of one family may write into the same datasets (ADR 0037)",
            ),
        ),
    ]
