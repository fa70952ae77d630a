"""What POST scripts did after failures, and counts of ended DAGs: nothing of them runs."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ENDED = ("completed", "partial", "failed", "stopped", "removed")


def nothing_runs(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("dags_app", "DAG").objects.filter(status__in=ENDED).update(nodes_idle=0, nodes_running=0, nodes_held=0)


class Migration(migrations.Migration):
    dependencies = (("dags_app", "0005_lost_queues"),)
    operations = (
        migrations.AddField(
            model_name="failuregroup",
            name="actions",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="what the POST script did after them: action -> attempts; used_up: no retry was left",
            ),
        ),
        migrations.RunPython(nothing_runs, migrations.RunPython.noop),
    )
