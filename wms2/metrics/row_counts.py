"""How many rows of a table are of which kind, kept by the database: readers of 100,000 requests count none of them (ADR 0029).

Owns: the triggers that write each change as a row of its own in the same transaction, so that no writer waits for another; adding
these rows together; reading. The kinds of a table, and what they mean, are its app's (``counted_by`` in a migration).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from django.db.migrations import RunSQL
from django.db.models import Sum

from wms2.models import RowCount
from wms2.runtime.sql import sql_rows

_BEGIN = """
CREATE FUNCTION {table}_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO row_counts (counted, kind, number) SELECT '{table}', {kind_of_row}, count(*) FROM written row GROUP BY 2;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO row_counts (counted, kind, number) SELECT '{table}', {kind_of_row}, -count(*) FROM written row GROUP BY 2;
  ELSE
    INSERT INTO row_counts (counted, kind, number) VALUES ('{table}', {kind_of_old}, -1), ('{table}', {kind_of_new}, 1);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER {table}_counted_in AFTER INSERT ON {table} REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION {table}_counted();
CREATE TRIGGER {table}_counted_out AFTER DELETE ON {table} REFERENCING OLD TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION {table}_counted();
CREATE TRIGGER {table}_counted_on AFTER UPDATE ON {table}
  FOR EACH ROW WHEN ({kind_of_old} IS DISTINCT FROM {kind_of_new}) EXECUTE FUNCTION {table}_counted();
INSERT INTO row_counts (counted, kind, number) SELECT '{table}', {kind_of_row}, count(*) FROM {table} row GROUP BY 2;
"""
_END = """
DROP TRIGGER {table}_counted_in ON {table};
DROP TRIGGER {table}_counted_out ON {table};
DROP TRIGGER {table}_counted_on ON {table};
DROP FUNCTION {table}_counted();
DELETE FROM row_counts WHERE counted = '{table}';
"""
#: Readers see the rows as they were or their sum; two who add at once take different rows, or wait for one another.
_ADD = """
WITH gone AS (
  DELETE FROM {table} WHERE EXISTS (SELECT FROM {table} GROUP BY {of}, kind HAVING count(*) > 1)
  RETURNING {of}, kind, number
)
INSERT INTO {table} ({of}, kind, number) SELECT {of}, kind, sum(number) FROM gone GROUP BY 1, 2 HAVING sum(number) <> 0
"""


def counted_by(table: str, kind: str) -> RunSQL:
    """For a migration: count the rows of ``table`` from now on by ``kind``, an SQL text over columns of ``{row}``.

    An UPDATE that leaves the kind as it is costs one comparison.
    """
    kinds = {f"kind_of_{name}": kind.format(row=name) for name in ("row", "old", "new")}
    return RunSQL(_BEGIN.format(table=table, **kinds), _END.format(table=table))


def row_counts() -> Mapping[str, Counter[str]]:
    """Table -> kind -> number of rows, one query; as exact as counting them in the same transaction."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for table, kind, number in RowCount.objects.values_list("counted", "kind").annotate(Sum("number")):
        found[table][kind] = number
    return found


def counts_fold(table: str = "row_counts", of: str = "counted") -> None:
    """Add the changes since the last time together; one statement, which writes nothing if there were none.

    ``table``: or another one of such changes, whose column ``of`` says what is counted.
    """
    sql_rows(_ADD.format(table=table, of=of))
