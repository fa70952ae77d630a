"""Campaigns get rows, and what is counted of their requests is kept by the database (ADR 0029).

Requests are counted by status as they change. Events asked for and done, jobs and failures are added as workflows, work units
and failure groups change. Work of a request that was given up (its outputs do not stay) is taken out of ``asked`` and ``done``:
one look at its work units, once. The one who ends a request is the one who accounts its units, so that nothing is lost between.
"""

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.models import F, Q, Value

_FUNCTIONS = """
CREATE FUNCTION campaign_work_stays(status text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT status NOT IN ('failed', 'aborted', 'cleaning', 'cleaned')
$$;
CREATE FUNCTION campaign_takes(request text, campaign text, sign integer, stays boolean, others boolean) RETURNS void
LANGUAGE sql AS $$
  INSERT INTO campaign_counts (campaign, kind, number)
  SELECT campaign_takes.campaign, sums.kind, sums.number * sign FROM workflows w, LATERAL (
    SELECT coalesce(sum(events), 0)::bigint AS events, (coalesce(sum(jobs), 0) + count(*))::bigint AS jobs
    FROM work_units WHERE workflow_id = w.id AND state = 'done'
  ) units, LATERAL (
    SELECT coalesce(sum(attempts), 0)::bigint AS attempts FROM failure_groups WHERE workflow_id = w.id
  ) failures, LATERAL (VALUES
    ('asked', w.requested_events, stays), ('done', units.events, stays),
    ('jobs', units.jobs, others), ('failed', failures.attempts, others)
  ) sums (kind, number, counts)
  WHERE w.request_name = request AND sums.counts AND sums.number <> 0
$$;
CREATE FUNCTION campaign_requests() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was boolean;
  is_now boolean;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO campaigns (name, first_at)
    SELECT campaign, min(created_at) FROM written WHERE campaign <> '' GROUP BY 1 ORDER BY 1 ON CONFLICT DO NOTHING;
    INSERT INTO campaign_counts (campaign, kind, number)
    SELECT campaign, 'status:' || status || ':' || hold_code, count(*) FROM written WHERE campaign <> '' GROUP BY 1, 2;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO campaign_counts (campaign, kind, number)
    SELECT campaign, 'status:' || status || ':' || hold_code, -count(*) FROM written WHERE campaign <> '' GROUP BY 1, 2;
  ELSE
    INSERT INTO campaigns (name) SELECT NEW.campaign WHERE NEW.campaign NOT IN ('', OLD.campaign) ON CONFLICT DO NOTHING;
    INSERT INTO campaign_counts (campaign, kind, number)
    SELECT * FROM (VALUES
      (OLD.campaign, 'status:' || OLD.status || ':' || OLD.hold_code, -1),
      (NEW.campaign, 'status:' || NEW.status || ':' || NEW.hold_code, 1)
    ) each (campaign, kind, number) WHERE campaign <> '';
    was := campaign_work_stays(OLD.status);
    is_now := campaign_work_stays(NEW.status);
    IF was <> is_now OR OLD.campaign <> NEW.campaign THEN
      PERFORM campaign_takes(OLD.request_name, OLD.campaign, -1, was, OLD.campaign <> NEW.campaign) WHERE OLD.campaign <> '';
      PERFORM campaign_takes(NEW.request_name, NEW.campaign, 1, is_now, OLD.campaign <> NEW.campaign) WHERE NEW.campaign <> '';
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION campaign_workflows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO campaign_counts (campaign, kind, number)
    SELECT r.campaign, 'asked', -OLD.requested_events FROM requests r
    WHERE r.request_name = OLD.request_name AND r.campaign <> '' AND campaign_work_stays(r.status) AND OLD.requested_events <> 0;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO campaign_counts (campaign, kind, number)
    SELECT r.campaign, 'asked', NEW.requested_events FROM requests r
    WHERE r.request_name = NEW.request_name AND r.campaign <> '' AND campaign_work_stays(r.status) AND NEW.requested_events <> 0;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION campaign_failures() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  more integer := 0;
  of_workflow uuid;
BEGIN
  IF TG_OP <> 'INSERT' THEN more := more - OLD.attempts; of_workflow := OLD.workflow_id; END IF;
  IF TG_OP <> 'DELETE' THEN more := more + NEW.attempts; of_workflow := NEW.workflow_id; END IF;
  INSERT INTO campaign_counts (campaign, kind, number)
  SELECT r.campaign, 'failed', more FROM workflows w JOIN requests r ON r.request_name = w.request_name
  WHERE w.id = of_workflow AND r.campaign <> '' AND more <> 0;
  RETURN NULL;
END $$;
"""
#: One statement's done units, whatever their number, are one or two rows. A function for each event: their tables differ.
_UNITS = """
CREATE FUNCTION campaign_units_{event}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO campaign_counts (campaign, kind, number)
  SELECT r.campaign, sums.kind, sum(sums.number) FROM ({changes}) changed
  JOIN workflows w ON w.id = changed.workflow_id JOIN requests r ON r.request_name = w.request_name, LATERAL (VALUES
    ('done', changed.events, campaign_work_stays(r.status)), ('jobs', changed.jobs, true)
  ) sums (kind, number, counts)
  WHERE r.campaign <> '' AND sums.counts GROUP BY 1, 2 HAVING sum(sums.number) <> 0;
  RETURN NULL;
END $$;
CREATE TRIGGER campaign_units_{event} AFTER {event} ON work_units REFERENCING {tables}
  FOR EACH STATEMENT EXECUTE FUNCTION campaign_units_{event}();
"""
_CHANGES = (
    "SELECT workflow_id, {sign}sum(events)::bigint AS events, {sign}(sum(jobs) + count(*))::bigint AS jobs FROM {table}"
    " WHERE state = 'done' GROUP BY 1"
)
_ADDED, _GONE = _CHANGES.format(sign="", table="written"), _CHANGES.format(sign="-", table="gone")
_TRIGGERS = """
CREATE TRIGGER campaign_requests_in AFTER INSERT ON requests REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION campaign_requests();
CREATE TRIGGER campaign_requests_out AFTER DELETE ON requests REFERENCING OLD TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION campaign_requests();
CREATE TRIGGER campaign_requests_on AFTER UPDATE ON requests FOR EACH ROW
  WHEN ((OLD.campaign, OLD.status, OLD.hold_code) IS DISTINCT FROM (NEW.campaign, NEW.status, NEW.hold_code))
  EXECUTE FUNCTION campaign_requests();
CREATE TRIGGER campaign_workflows_in AFTER INSERT OR DELETE ON workflows FOR EACH ROW EXECUTE FUNCTION campaign_workflows();
CREATE TRIGGER campaign_workflows_on AFTER UPDATE ON workflows FOR EACH ROW
  WHEN (OLD.requested_events IS DISTINCT FROM NEW.requested_events) EXECUTE FUNCTION campaign_workflows();
CREATE TRIGGER campaign_failures_in AFTER INSERT OR DELETE ON failure_groups
  FOR EACH ROW EXECUTE FUNCTION campaign_failures();
CREATE TRIGGER campaign_failures_on AFTER UPDATE ON failure_groups FOR EACH ROW
  WHEN (OLD.attempts IS DISTINCT FROM NEW.attempts) EXECUTE FUNCTION campaign_failures();
"""
#: What there is already.
_FIRST = """
INSERT INTO campaigns (name, first_at) SELECT campaign, min(created_at) FROM requests WHERE campaign <> '' GROUP BY 1;
INSERT INTO campaign_counts (campaign, kind, number)
SELECT campaign, 'status:' || status || ':' || hold_code, count(*) FROM requests WHERE campaign <> '' GROUP BY 1, 2
UNION ALL
SELECT campaign, 'asked', sum(requested_events) FROM requests r JOIN workflows w ON w.request_name = r.request_name
WHERE campaign <> '' AND campaign_work_stays(r.status) GROUP BY 1
UNION ALL
SELECT campaign, 'done', sum(u.events) FROM requests r JOIN workflows w ON w.request_name = r.request_name
JOIN work_units u ON u.workflow_id = w.id AND u.state = 'done' WHERE campaign <> '' AND campaign_work_stays(r.status) GROUP BY 1
UNION ALL
SELECT campaign, 'jobs', sum(u.jobs) + count(*) FROM requests r JOIN workflows w ON w.request_name = r.request_name
JOIN work_units u ON u.workflow_id = w.id AND u.state = 'done' WHERE campaign <> '' GROUP BY 1
UNION ALL
SELECT campaign, 'failed', sum(f.attempts) FROM requests r JOIN workflows w ON w.request_name = r.request_name
JOIN failure_groups f ON f.workflow_id = w.id WHERE campaign <> '' GROUP BY 1;
"""
_AWAY = """
DROP TRIGGER campaign_requests_in ON requests;
DROP TRIGGER campaign_requests_out ON requests;
DROP TRIGGER campaign_requests_on ON requests;
DROP TRIGGER campaign_workflows_in ON workflows;
DROP TRIGGER campaign_workflows_on ON workflows;
DROP TRIGGER campaign_failures_in ON failure_groups;
DROP TRIGGER campaign_failures_on ON failure_groups;
DROP TRIGGER campaign_units_insert ON work_units;
DROP TRIGGER campaign_units_update ON work_units;
DROP TRIGGER campaign_units_delete ON work_units;
DROP FUNCTION campaign_units_insert();
DROP FUNCTION campaign_units_update();
DROP FUNCTION campaign_units_delete();
DROP FUNCTION campaign_requests();
DROP FUNCTION campaign_workflows();
DROP FUNCTION campaign_failures();
DROP FUNCTION campaign_takes(text, text, integer, boolean, boolean);
DROP FUNCTION campaign_work_stays(text);
"""
_COUNTING = (
    _FUNCTIONS
    + _TRIGGERS
    + _UNITS.format(event="insert", tables="NEW TABLE AS written", changes=_ADDED)
    + _UNITS.format(event="delete", tables="OLD TABLE AS gone", changes=_GONE)
    + _UNITS.format(
        event="update", tables="NEW TABLE AS written OLD TABLE AS gone", changes=f"{_ADDED} UNION ALL {_GONE}"
    )
    + _FIRST
)


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0008_search")]

    operations = [
        migrations.CreateModel(
            "Campaign",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                (
                    "owner",
                    models.CharField(
                        blank=True, db_default=Value(""), help_text="who answers for it: people or groups", max_length=200
                    ),
                ),
                ("begins_at", models.DateTimeField(blank=True, help_text="as planned", null=True)),
                ("ends_at", models.DateTimeField(blank=True, help_text="when it is to be done", null=True)),
                ("note", models.TextField(blank=True, db_default=Value(""))),
                (
                    "first_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), help_text="when its first request came"
                    ),
                ),
            ],
            options={
                "db_table": "campaigns",
                "ordering": ("name",),
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(begins_at__isnull=True) | Q(ends_at__isnull=True) | Q(ends_at__gt=F("begins_at")),
                        name="campaign_ends_later",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "CampaignCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("campaign", models.CharField(max_length=100)),
                ("kind", models.CharField(max_length=100)),
                ("number", models.BigIntegerField()),
            ],
            options={
                "db_table": "campaign_counts",
                "indexes": [models.Index(fields=("campaign",), name="idx_campaign_counts")],
            },
        ),
        migrations.RunSQL(_COUNTING, _AWAY),
    ]
