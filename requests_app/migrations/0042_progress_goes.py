"""Events of progress go after a day, and no reader misses them: their going does not tell it that the feed begins later."""

from django.db import migrations

_GONE = """
CREATE OR REPLACE FUNCTION events_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE event_feed SET removed = last.position
  FROM (SELECT max(position) AS position FROM gone WHERE {counted}) last WHERE removed < last.position;
  RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0041_reconcile")]

    operations = [
        migrations.RunSQL(_GONE.format(counted="kind <> 'request.progress'"), _GONE.format(counted="true")),
    ]
