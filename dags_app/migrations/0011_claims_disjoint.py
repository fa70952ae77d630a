"""Live claims never overlap: refused by a trigger that looks at all rows of a statement at once (docs/adr/0063)."""

from django.db import migrations, models
from django.db.models import F, Q

#: ``fresh`` are the rows that a statement has written. Of the rows that begin before one of them ends, the one that begins last, itself
#: left aside, is looked up by index: rows that are there are disjoint, so that an overlap always shows there, one among the new rows too.
#: The lock makes those who claim work of one workflow take turns; each statement of a function looks anew at READ COMMITTED, so that
#: what ended before is seen. Plans go by indexes: nothing is known yet of rows just copied.
FUNCTION = """
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
TRIGGER = """
CREATE TRIGGER live_claims_disjoint AFTER INSERT ON work_unit_claims REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION live_claims_disjoint();
CREATE TRIGGER changed_claims_disjoint AFTER UPDATE ON work_unit_claims REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION live_claims_disjoint();
"""


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0010_plain_claims")]

    operations = [
        migrations.RemoveIndex("workunitclaim", "claim_by_file"),
        migrations.AddIndex(
            "workunitclaim",
            models.Index(fields=["input_file", "first"], name="claim_by_file", condition=Q(input_file__isnull=False)),
        ),
        migrations.AddIndex(
            "workunitclaim",
            models.Index(
                fields=["scope", "kind", "run", "first"],
                name="live_claim_by_run",
                condition=Q(live=True, input_file__isnull=True),
            ),
        ),
        migrations.AddConstraint(
            "workunitclaim", models.CheckConstraint(condition=Q(first__lte=F("last")), name="claim_not_empty")
        ),
        migrations.AddConstraint(
            "workunitclaim",
            models.CheckConstraint(
                condition=Q(kind=1, input_file=F("scope"), run=0) | Q(kind__in=(0, 2, 3), input_file__isnull=True),
                name="claim_scope_fits_kind",
            ),
        ),
        migrations.RunSQL(FUNCTION, "DROP FUNCTION live_claims_disjoint()"),
        migrations.RunSQL(
            TRIGGER,
            "DROP TRIGGER live_claims_disjoint ON work_unit_claims; DROP TRIGGER changed_claims_disjoint ON work_unit_claims",
        ),
    ]
