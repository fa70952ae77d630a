"""Failures are looked up over all requests: those of some hours, those of a code at a site; and what was done at a site lately."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.expressions import RawSQL


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("dags_app", "0003_search")]

    operations = [
        AddIndexConcurrently("failuregroup", models.Index(fields=("last_at",), name="idx_failure_groups_last")),
        AddIndexConcurrently("failuregroup", models.Index(fields=("code", "site", "last_at"), name="idx_failure_groups_place")),
        AddIndexConcurrently(
            "workunit",
            models.Index(condition=Q(state="done"), fields=("site", "done_at"), include=("jobs",), name="work_unit_done_there"),
        ),
        migrations.AlterField(
            "dag",
            "jobs",
            models.JSONField(
                blank=True,
                db_default=RawSQL("'{}'::jsonb", ()),
                default=dict,
                help_text="the same by role and by site: state -> node jobs; waits: site -> since when some wait there and none"
                " runs",
            ),
        ),
    ]
