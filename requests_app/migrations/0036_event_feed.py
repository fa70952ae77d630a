"""Events have places in the feed, are only appended, and are told by the database of what other apps' rows do (ADR 0096)."""

from django.db import migrations, models

#: Places are given once, and nothing else ever changes.
_STAY = """
CREATE FUNCTION events_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'events are only appended'; END $$;
CREATE TRIGGER events_stay BEFORE UPDATE ON events FOR EACH ROW
  WHEN (OLD.position IS NOT NULL OR NEW.position IS NULL
    OR (OLD.request_id, OLD.kind, OLD.data, OLD.at) IS DISTINCT FROM (NEW.request_id, NEW.kind, NEW.data, NEW.at))
  EXECUTE FUNCTION events_stay();
CREATE FUNCTION events_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE event_feed SET removed = last.position FROM (SELECT max(position) AS position FROM gone) last WHERE removed < last.position;
  RETURN NULL;
END $$;
CREATE TRIGGER events_gone AFTER DELETE ON events REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION events_gone();
"""
_STAY_NOT = """
DROP TRIGGER events_stay ON events;
DROP TRIGGER events_gone ON events;
DROP FUNCTION events_stay();
DROP FUNCTION events_gone();
"""
#: Arguments: the kind of event, the column whose change it is, further columns to tell.
_TELL = """
CREATE FUNCTION feed_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was jsonb := CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) ELSE '{}' END;
  is_now jsonb := to_jsonb(NEW);
  told jsonb := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(is_now) WHERE key = 'id' OR key = ANY (TG_ARGV[2:]));
  of_request uuid;
BEGIN
  IF is_now ? 'workflow_id' THEN
    SELECT id INTO of_request FROM requests
    WHERE request_name = (SELECT request_name FROM workflows WHERE id = (is_now->>'workflow_id')::uuid);
  ELSIF is_now->>'target_type' = 'request' THEN
    SELECT id INTO of_request FROM requests WHERE request_name = is_now->>'target';
  ELSE
    of_request := (is_now->>'request_id')::uuid;
  END IF;
  IF TG_ARGV[1] <> '' THEN
    told := coalesce(told, '{}') || jsonb_build_object('from', was->TG_ARGV[1], 'to', is_now->TG_ARGV[1]);
  END IF;
  INSERT INTO events (request_id, kind, data, at) VALUES (of_request, TG_ARGV[0], coalesce(told, '{}'), clock_timestamp());
  RETURN NULL;
END $$;
"""


def told_by(table: str, name: str, when: str, what: str, kind: str, *columns: str) -> migrations.RunSQL:
    """An event of that kind whenever ``when`` (of INSERT or UPDATE) ``what`` is so."""
    arguments = ", ".join(f"'{each}'" for each in (kind, *columns))
    return migrations.RunSQL(
        f"CREATE TRIGGER {name} AFTER {when} ON {table} FOR EACH ROW WHEN ({what}) EXECUTE FUNCTION feed_tell({arguments})",
        f"DROP TRIGGER {name} ON {table}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0035_standing"),
        ("wms2", "0004_audit_by_time"),
        ("dags_app", "0018_harvesting"),
        ("outputs_app", "0014_block_evidence"),
        ("sites_app", "0008_pools"),
    ]

    operations = [
        migrations.CreateModel(
            "EventFeed",
            [
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("last", models.BigIntegerField(default=0, help_text="the newest place given")),
                ("removed", models.BigIntegerField(default=0, help_text="of places up to this some events are removed")),
            ],
            options={
                "db_table": "event_feed",
                "constraints": [models.CheckConstraint(condition=models.Q(id=1), name="event_feed_is_one_row")],
            },
        ),
        migrations.AddField(
            "event",
            "position",
            models.BigIntegerField(null=True, unique=True, editable=False, help_text="its place in the feed: the id that readers see"),
        ),
        migrations.AddIndex(
            "event", models.Index(fields=["id"], name="idx_events_unplaced", condition=models.Q(position__isnull=True))
        ),
        # a former release writes the column; it goes with a later one
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("event", "xid")]),
        migrations.RunSQL(_STAY, _STAY_NOT),
        migrations.RunSQL(_TELL, "DROP FUNCTION feed_tell()"),
        told_by("dags", "dags_begin", "INSERT", "true", "dag.status", "status", "round_id", "kind", "parent_dag_id"),
        told_by(
            "dags", "dags_told", "UPDATE", "OLD.status <> NEW.status",
            "dag.status", "status", "round_id", "kind", "schedd_name", "dagman_cluster_id",
        ),
        told_by("rounds", "rounds_begin", "INSERT", "true", "round.begin", "", "index"),
        told_by(
            "rounds", "rounds_end", "UPDATE", "OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL", "round.end", "", "index"
        ),
        told_by(
            "processing_blocks", "blocks_told", "UPDATE", "OLD.status <> NEW.status",
            "block.status", "status", "dbs_block_name", "dataset_name",
        ),
        told_by(
            "processing_blocks", "blocks_registered", "UPDATE", "NEW.dbs_block_closed AND NOT OLD.dbs_block_closed",
            "block.registered", "", "dbs_block_name", "dataset_name",
        ),
        told_by(
            "effects", "effects_told", "UPDATE",
            "OLD.state <> NEW.state AND (OLD.state IN ('dead', 'refused') OR NEW.state IN ('dead', 'refused'))",
            "effect.state", "state", "kind", "key", "last_error",
        ),
        told_by(
            "sites", "sites_told", "UPDATE", "OLD.status <> NEW.status", "site.status", "status", "name", "status_reason",
            "status_actor",
        ),
        told_by("schedds", "schedds_told", "UPDATE", "OLD.state <> NEW.state", "schedd.state", "state", "name"),
        told_by("pools", "pools_told", "UPDATE", "OLD.state <> NEW.state", "pool.state", "state", "name"),
        # names of columns as text: one that a part of WMS2 adds later is told from then on
        told_by(
            "schedds", "schedds_health", "UPDATE", "to_jsonb(OLD)->>'health' IS DISTINCT FROM to_jsonb(NEW)->>'health'",
            "schedd.health", "health", "name", "health_reason",
        ),
        told_by(
            "audit_entries", "audit_told", "INSERT", "NEW.target_type NOT IN ('user', 'address')",
            "audit", "", "actor", "action", "target_type", "target", "outcome", "reason",
        ),
    ]  # fmt: skip
