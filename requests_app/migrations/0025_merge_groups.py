"""Where schedds are known, whose slots were counted for DAGs of ten units at once, that stays until an operator raises both."""

from __future__ import annotations

import os

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "dag_max_merge_groups"


def as_by_default_so_far(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Unless somebody chose a number: by a limit, or in the environment, which a limit would hide."""
    if apps.get_model("sites_app", "Schedd").objects.exists() and not os.environ.get(f"WMS2_{NAME.upper()}"):
        reason = "the default until now; raise it together with max_dagman_slots of the schedds"
        defaults = {"value": 10, "actor": "upgrade", "reason": reason}
        apps.get_model("requests_app", "Limit").objects.get_or_create(name=NAME, defaults=defaults)


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0024_search_index"), ("sites_app", "0006_words")]

    operations = [migrations.RunPython(as_by_default_so_far, migrations.RunPython.noop)]
