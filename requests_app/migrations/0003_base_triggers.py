"""What the database does by itself: functions, triggers, a view, and the rows that every installation begins with.

Events of the feed (ADR 0029), wakes of admission, claims that never overlap (ADR 0007), rows that are counted as they change
(ADR 0029), dead letters, the index for searches.
"""

from django.db import migrations

from wms2.metrics.row_counts import counted_by

#: Places in the feed are given once, and nothing else ever changes. Events of progress go after a day, and no reader misses them.
_STAY = """
CREATE FUNCTION events_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'events are only appended'; END $$;
CREATE TRIGGER events_stay BEFORE UPDATE ON events FOR EACH ROW
  WHEN (OLD.position IS NOT NULL OR NEW.position IS NULL
    OR (OLD.request_id, OLD.kind, OLD.data, OLD.at) IS DISTINCT FROM (NEW.request_id, NEW.kind, NEW.data, NEW.at))
  EXECUTE FUNCTION events_stay();
CREATE FUNCTION events_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE event_feed SET removed = last.position
  FROM (SELECT max(position) AS position FROM gone WHERE kind <> 'request.progress') last WHERE removed < last.position;
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


_ADMISSION = """
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


#: ``fresh`` are the rows that a statement has written. Of the rows that begin before one of them ends, the one that begins last, itself
#: left aside, is looked up by index: rows that are there are disjoint, so that an overlap always shows there, one among the new rows too.
#: The lock makes those who claim work of one workflow take turns; each statement of a function looks anew at READ COMMITTED, so that
#: what ended before is seen. Plans go by indexes: nothing is known yet of rows just copied.
_CLAIMS = """
CREATE FUNCTION live_claims_disjoint() RETURNS trigger LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  claim record;
  held record;
  what text;
BEGIN
  IF NOT EXISTS (SELECT FROM fresh WHERE live) THEN
    RETURN NULL;
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE object_not_in_prerequisite_state USING MESSAGE = 'claims are taken at READ COMMITTED, where one sees what others have taken';
  END IF;
  SELECT fresh.* INTO claim FROM fresh
    LEFT JOIN work_units unit ON unit.id = fresh.unit_id
    LEFT JOIN workflows workflow ON workflow.id = unit.workflow_id
    LEFT JOIN input_files file ON file.id = fresh.input_file_id
    WHERE live AND (CASE kind WHEN 1 THEN file.workflow_id = workflow.id ELSE scope = workflow.number END) IS NOT TRUE LIMIT 1;
  IF FOUND THEN
    RAISE foreign_key_violation USING CONSTRAINT = 'claim_within_workflow', MESSAGE =
      format('claim_within_workflow: unit %s claims of %s, and these are not of one workflow, or not there', claim.unit_id, claim.scope);
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('work_unit_claims ' || workflow_id, 0)) FROM (
    SELECT DISTINCT workflow_id FROM (SELECT DISTINCT unit_id FROM fresh WHERE live) units JOIN work_units unit ON unit.id = unit_id
    ORDER BY 1) workflows;
  SELECT fresh.*, before.id AS held_id INTO claim FROM fresh CROSS JOIN LATERAL (
      (SELECT other.id, other.last FROM work_unit_claims other
        WHERE fresh.kind = 1 AND other.live AND other.input_file_id = fresh.input_file_id
          AND other.first <= fresh.last AND other.id <> fresh.id
        ORDER BY other.first DESC LIMIT 1)
      UNION ALL
      (SELECT other.id, other.last FROM work_unit_claims other
        WHERE fresh.kind <> 1 AND other.live AND other.input_file_id IS NULL AND other.scope = fresh.scope
          AND other.kind = fresh.kind AND other.run = fresh.run AND other.first <= fresh.last AND other.id <> fresh.id
        ORDER BY other.first DESC LIMIT 1)) before
    WHERE fresh.live AND before.last >= fresh.first LIMIT 1;
  IF FOUND THEN
    SELECT other.first, other.last, unit.name INTO held FROM work_unit_claims other
      LEFT JOIN work_units unit ON unit.id = other.unit_id WHERE other.id = claim.held_id;
    what := CASE claim.kind WHEN 1 THEN 'events of ' || (SELECT lfn FROM input_files WHERE id = claim.input_file_id)
      WHEN 2 THEN 'lumis of run ' || claim.run WHEN 0 THEN 'generated events' ELSE 'lumis of generated events' END;
    RAISE exclusion_violation USING CONSTRAINT = 'live_claims_disjoint', MESSAGE = format(
      'live_claims_disjoint: %s claims %s, %s to %s, of which %s has %s to %s',
      (SELECT name FROM work_units WHERE id = claim.unit_id), what, claim.first, claim.last, held.name, held.first, held.last);
  END IF;
  RETURN NULL;
END $$
"""
_CLAIMS_TRIGGERS = """
CREATE TRIGGER live_claims_disjoint AFTER INSERT ON work_unit_claims REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION live_claims_disjoint();
CREATE TRIGGER changed_claims_disjoint AFTER UPDATE ON work_unit_claims REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION live_claims_disjoint();
"""
_VIEW = """
CREATE VIEW dead_letters AS
SELECT 'effect-' || e.id AS id, 'effect' AS kind, e.id::text AS row, r.request_name, e.key AS what, e.attempts,
  coalesce(e.first_failed_at, e.created_at) AS since, e.last_error
FROM effects e JOIN requests r ON r.id = e.request_id AND r.epoch = e.epoch WHERE e.state IN ('refused', 'dead')
UNION ALL
SELECT 'harvest-' || h.id, 'harvest', h.id::text, h.request_name, h.dataset || ' run ' || h.run, h.attempts, h.next_try_at, h.problem
FROM harvests h WHERE h.state = 'failed'
UNION ALL
SELECT 'leftover-' || l.id, 'leftover', l.id::text, w.request_name, u.name || ' at ' || l.site, l.tries, l.next_try_at, l.problem
FROM leftovers l JOIN work_units u ON u.id = l.unit_id JOIN workflows w ON w.id = u.workflow_id
WHERE l.settled_at IS NULL AND l.tries >= 3
UNION ALL
SELECT 'storage-' || s.id, 'storage', s.id::text, w.request_name, b.dbs_block_name || ' at ' || s.rse, s.tries, v.asked_at, s.problem
FROM storage_checks s JOIN block_validations v ON v.block_id = s.validation_id JOIN processing_blocks b ON b.id = v.block_id
JOIN workflows w ON w.id = b.workflow_id WHERE s.done_at IS NULL AND s.tries >= 3 AND s.generation = v.generation
UNION ALL
SELECT 'comparison-' || c.id, 'comparison', c.id::text, w.request_name, coalesce(d.name, 'census of rules'), 0,
  coalesce(c.ended_at, c.begun_at, c.asked_at, c.due_at), c.last_error
FROM comparisons c LEFT JOIN output_datasets d ON d.id = c.dataset_id LEFT JOIN workflows w ON w.id = d.workflow_id
WHERE c.last_error <> '' AND coalesce(c.ended_at, c.begun_at, c.asked_at, c.due_at) < now() - interval '6 hours'
UNION ALL
SELECT 'pack-' || g.id, 'pack', g.id::text, w.request_name, g.submit_dir, 0, coalesce(g.pack_tried_at, g.created_at), g.pack_problem
FROM dags g JOIN workflows w ON w.id = g.workflow_id
WHERE g.packed_at IS NULL AND g.pack_problem <> '' AND g.directory_id = g.id
UNION ALL
SELECT 'reqmgr2-' || q.id, 'reqmgr2', q.id::text, r.request_name, coalesce(q.name, 'a clone'), 0,
  coalesce(q.compared_at, q.claimed_at, now()), q.problem
FROM reqmgr2_requests q LEFT JOIN requests r ON r.id = q.request_id
WHERE q.problem <> '' AND q.problem NOT LIKE 'not yet:%' AND NOT q.over
UNION ALL
SELECT 'task-' || t.name, 'task', t.name, NULL, t.name, t.failures, t.since, t.last_error
FROM failing_tasks t WHERE t.failures >= 3 AND t.discarded = ''
"""
#: For searches in the middle of names, where PostgreSQL has the extension ``pg_trgm``: it is part of its contrib package and trusted,
#: so the database's owner may create it. Without it (a server of the bare binaries, a role that may create nothing) a search reads
#: the whole column; run the two statements once it is there.
_SEARCH = "idx_requests_search"
_CREATE = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f"CREATE INDEX IF NOT EXISTS {_SEARCH} ON requests USING gin (search_text gin_trgm_ops)",
)
_MAY_CREATE = """
    SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm')
        OR EXISTS (SELECT FROM pg_available_extension_versions WHERE name = 'pg_trgm' AND trusted)
        AND has_database_privilege(current_database(), 'CREATE')
"""


def search_index(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_MAY_CREATE)
        (may,) = cursor.fetchone()
    if may:
        for statement in _CREATE:
            schema_editor.execute(statement)


def no_search_index(apps, schema_editor):
    schema_editor.execute(f"DROP INDEX IF EXISTS {_SEARCH}")


def first_rows(apps, schema_editor):
    """Limits for all bands, campaigns and requesters, and where outputs go where operators decide nothing else: to tape."""
    limits = apps.get_model("requests_app", "AdmissionLimit")
    limits.objects.bulk_create([limits(kind=kind) for kind in ("band", "campaign", "requester")])
    apps.get_model("outputs_app", "Placement").objects.get_or_create(campaign="", tier="")


class Migration(migrations.Migration):
    replaces = [
        ("requests_app", "0049_failed_elsewhere"),
    ]

    dependencies = [
        ("requests_app", "0002_base_of_dags"),
        ("dags_app", "0001_base"),
        ("outputs_app", "0001_base"),
        ("sites_app", "0002_base_bans"),
        ("wms2", "0001_base"),
    ]

    operations = [
        migrations.RunPython(first_rows, migrations.RunPython.noop),
        # columns that processes of the former release write; a later one drops them
        migrations.RunSQL(
            "ALTER TABLE events ADD xid bigint NOT NULL DEFAULT ((pg_current_xact_id())::text)::bigint;"
            " ALTER TABLE schedds ADD collector varchar(255) NOT NULL DEFAULT ''",
            "ALTER TABLE events DROP xid; ALTER TABLE schedds DROP collector",
        ),
        # families of requests, and of datasets that they own, are the same (ADR 0017)
        migrations.RunSQL(
            "ALTER TABLE dataset_owners ADD CONSTRAINT dataset_owner_of_the_family"
            " FOREIGN KEY (dataset_id, family) REFERENCES owned_datasets (id, family)",
            "ALTER TABLE dataset_owners DROP CONSTRAINT dataset_owner_of_the_family",
        ),
        migrations.RunSQL(_CLAIMS, "DROP FUNCTION live_claims_disjoint()"),
        migrations.RunSQL(
            _CLAIMS_TRIGGERS,
            "DROP TRIGGER live_claims_disjoint ON work_unit_claims; DROP TRIGGER changed_claims_disjoint ON work_unit_claims",
        ),
        counted_by("requests", "{row}.status || ':' || {row}.hold_code || ':' || ({row}.alert_code <> '')"),
        counted_by("workflows", "{row}.status"),
        counted_by("processing_blocks", "{row}.status"),
        migrations.RunSQL(_VIEW, "DROP VIEW dead_letters"),
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
        migrations.RunSQL(_ADMISSION, "DROP FUNCTION admission_woken"),
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
        row("sites", "status status_reason status_actor drain_until"),
        row("site_bans", "removed_at expires_at workflow_id"),
        row("workflows", "config_data", new="false", old="false"),  # its site lists
        migrations.RunSQL(
            "CREATE TRIGGER requests_admission_complete AFTER UPDATE ON requests FOR EACH ROW"
            " WHEN (OLD.complete_early IS DISTINCT FROM NEW.complete_early) EXECUTE FUNCTION admission_woken()",
            "DROP TRIGGER requests_admission_complete ON requests",
        ),
        migrations.RunPython(search_index, no_search_index),
    ]  # fmt: skip
