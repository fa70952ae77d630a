"""Claims as plain columns, without the exclusion constraint and foreign keys of ranges (docs/adr/0063); live and dead ones stay."""

from django.db import migrations, models
from django.db.models.deletion import CASCADE, PROTECT

FORWARD = """
ALTER TABLE work_unit_claims ADD COLUMN last bigint;
UPDATE work_unit_claims SET last = upper(span) - 1;
ALTER TABLE work_unit_claims ALTER COLUMN kind TYPE smallint USING lower(kind), ALTER COLUMN scope TYPE bigint USING lower(scope),
  ALTER COLUMN run TYPE bigint USING lower(run), ALTER COLUMN span TYPE bigint USING lower(span), ALTER COLUMN last SET NOT NULL;
ALTER TABLE work_unit_claims RENAME COLUMN span TO first;
"""
REVERSE = """
ALTER TABLE work_unit_claims RENAME COLUMN first TO span;
ALTER TABLE work_unit_claims ALTER COLUMN kind TYPE int8range USING int8range(kind, kind, '[]'),
  ALTER COLUMN scope TYPE int8range USING int8range(scope, scope, '[]'), ALTER COLUMN run TYPE int8range USING int8range(run, run, '[]'),
  ALTER COLUMN span TYPE int8range USING int8range(span, last, '[]');
ALTER TABLE work_unit_claims DROP COLUMN last;
"""


def _reference(to: str, name: str, on_delete: object, **fields: object) -> migrations.AlterField:
    field = models.ForeignKey(to, on_delete, related_name="claims", db_constraint=False, **fields)
    return migrations.AlterField("workunitclaim", name, field)


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0009_unwritten_columns"), ("requests_app", "0020_words")]

    operations = [
        migrations.RemoveConstraint("workunitclaim", "live_claims_disjoint"),
        migrations.RemoveConstraint("workunitclaim", "claim_span_not_empty"),
        _reference("dags_app.workunit", "unit", CASCADE),
        _reference("requests_app.inputfile", "input_file", PROTECT, null=True, blank=True, db_index=False),
        migrations.RunSQL(
            FORWARD,
            REVERSE,
            state_operations=[
                migrations.AlterField("workunitclaim", "kind", models.SmallIntegerField()),
                migrations.AlterField("workunitclaim", "scope", models.BigIntegerField()),
                migrations.AlterField("workunitclaim", "run", models.BigIntegerField()),
                migrations.RenameField("workunitclaim", "span", "first"),
                migrations.AlterField("workunitclaim", "first", models.BigIntegerField()),
                migrations.AddField("workunitclaim", "last", models.BigIntegerField()),
            ],
        ),
    ]
