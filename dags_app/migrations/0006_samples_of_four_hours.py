"""Samples in buckets of four hours, for a month: those that there are, from the buckets of an hour; all further ones with the others."""

from django.db import migrations

_KEYS = "by, site, step, code, release, campaign"
_BUCKET = "date_bin(interval '4 hours', at, 'epoch')"


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0005_samples_of_one_site_or_campaign")]

    operations = [
        migrations.RunSQL(
            f"""
            INSERT INTO samples (seconds, at, {_KEYS}, units, events, files, failures, core_seconds)
            SELECT 14400, {_BUCKET}, {_KEYS}, sum(units), sum(events), sum(files), sum(failures), sum(core_seconds)
            FROM samples WHERE seconds = 3600 GROUP BY {_BUCKET}, {_KEYS};
            INSERT INTO state_samples (seconds, at, what, by, label, total)
            SELECT 14400, {_BUCKET}, what, by, label, sum(total) FROM state_samples WHERE seconds = 3600
            GROUP BY {_BUCKET}, what, by, label;
            """,  # noqa: S608
            "DELETE FROM samples WHERE seconds = 14400; DELETE FROM state_samples WHERE seconds = 14400;",
        ),
    ]
