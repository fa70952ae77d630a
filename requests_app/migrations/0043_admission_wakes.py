"""Whatever an admission pass rests on is told to the next one by a wake of nobody's, in the transaction that changes it."""

from django.db import migrations, models

_FUNCTION = """
CREATE FUNCTION admission_woken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO wakes (request_id, why, at)
  VALUES ('00000000-0000-0000-0000-000000000000', 'admission: ' || TG_TABLE_NAME, clock_timestamp());
  RETURN NULL;
END $$
"""


def row(table, columns, *, also="", new="true", old="true"):
    """An update of one of these columns, or as ``also`` says; a row that comes, or goes, of which ``new``, or ``old``, holds."""
    changed = " OR ".join(f"OLD.{name} IS DISTINCT FROM NEW.{name}" for name in columns.split())
    whens = {"UPDATE": f"{changed} {also}", "INSERT": new, "DELETE": old}
    sql = "; ".join(
        f"CREATE TRIGGER {table}_admission_{event.lower()} AFTER {event} ON {table}"
        f" FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION admission_woken()"
        for event, when in whens.items()
    )
    back = "; ".join(f"DROP TRIGGER {table}_admission_{event.lower()} ON {table}" for event in whens)
    return migrations.RunSQL(sql, back)


_COUNTS = "{0}.status IN ('queued', 'planning', 'partial')"
_QUEUE = """
OR (({was} OR {now}) AND NOT (OLD.status = 'queued' AND NEW.status = 'planning')
    AND (OLD.status, OLD.queued_at, OLD.next_attempt_at IS NULL, OLD.overrides, OLD.moving, OLD.reserved_schedd_id, OLD.reserved_slots)
    IS DISTINCT FROM
    (NEW.status, NEW.queued_at, NEW.next_attempt_at IS NULL, NEW.overrides, NEW.moving, NEW.reserved_schedd_id, NEW.reserved_slots))
""".format(was=_COUNTS.format("OLD"), now=_COUNTS.format("NEW"))


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0042_progress_goes"),
        ("dags_app", "0020_began_at"),
        ("sites_app", "0011_health"),
        ("wms2", "0002_wakes"),
    ]

    operations = [
        migrations.AddField("admissionstate", "again_at", models.DateTimeField(blank=True, null=True)),
        migrations.RunSQL(_FUNCTION, "DROP FUNCTION admission_woken"),
        # a start takes a slot from those that wait and gives them none
        row("requests", "urgent priority campaign requestor", also=_QUEUE, new=_COUNTS.format("NEW"), old=_COUNTS.format("OLD")),
        row("dags", "status schedd_id merge_groups nodes_idle jobs node_counts total_work_units submitted_at round_id throttles"),
        row("rounds", "closed_at"),
        row(
            "schedds",
            "name pool submit_root state unreachable_since health health_reason max_dagman_slots dagmans_others owner_dagmans"
            " drain_at_once drain_reason drain_actor",
        ),
        row("pools", "state file_system"),
        row("limits", "value"),
        row("admission_limits", "kind name least_priority max_dags rate_per_hour burst updated_at"),  # buckets are full again
    ]
