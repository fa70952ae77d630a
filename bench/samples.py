"""Samples at 300 DAGs: what adding them up costs, how many rows stay, what a chart reads (docs/design/samples.md).

Each five minutes ``BENCH_ROWS`` (1,500) transactions account units or failures of 60 sites, 20 campaigns, 8 releases, 12 steps
and 25 codes, more groups than a bucket keeps. Two hours are added up; then their rows are repeated over a month, and charts read.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

ROWS, HOURS, DAYS = int(os.environ.get("BENCH_ROWS", "1500")), 2, 31


def main() -> None:
    """Figures, one a line."""
    import django

    django.setup()
    from django.utils import timezone

    from requests_app.selectors.samples import series
    from wms2.web.time_range import RANGES, TimeRange

    fill()
    now = timezone.now()
    for name in RANGES:
        range_ = TimeRange.of({"range": name}, now)
        whole, by_site, narrow = (
            _took(partial(series, "failures", range_, **asked))
            for asked in ({}, {"by": "site"}, {"by": "code", "site": "T2_XX_Site7"})
        )
        print(f"{name:>4}: total {whole:.0f} ms, by site {by_site:.0f} ms, by code at one site {narrow:.0f} ms")


def fill() -> None:
    """The rows of a month, in place of those that are there."""
    from django.db import connection, transaction
    from django.utils import timezone

    from dags_app.models import BUCKETS, Sample, StateSample
    from requests_app.lifecycle.sampling import samples_fold, samples_take

    Sample.objects.all().delete()
    StateSample.objects.all().delete()
    draw, now = random.Random(37), timezone.now()  # noqa: S311
    begins = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS)
    folds = []
    for number in range(HOURS * 12):
        at = begins + timedelta(minutes=5 * number)
        Sample.objects.bulk_create(_fresh(draw, at) for _ in range(ROWS))
        begun = time.perf_counter()
        samples_fold(transaction.atomic, at + timedelta(minutes=5))
        folds.append(time.perf_counter() - begun)
    print(
        f"{ROWS} rows of five minutes added up: median {statistics.median(folds) * 1000:.0f} ms,"
        f" at most {max(folds) * 1000:.0f} ms"
    )
    begun = time.perf_counter()
    samples_take(transaction.atomic)
    print(f"a look at how things stand, and nothing to add up: {(time.perf_counter() - begun) * 1000:.0f} ms")
    written = 0.0
    for seconds in BUCKETS:
        rows = Sample.objects.filter(seconds=seconds)
        buckets = rows.values("at").distinct().count()
        day = rows.count() / buckets * 86_400 / seconds
        written += round(day)
        print(f"buckets of {seconds:6} s: {rows.count() / buckets:6.0f} rows each, {day:8,.0f} a day")
    print(f"rows a day: {written:,.0f}")
    with connection.cursor() as cursor:
        columns = "seconds, by, site, step, code, release, campaign, units, events, files, failures, core_seconds"
        cursor.execute(
            f"INSERT INTO samples ({columns}, at) SELECT {columns}, at - each * interval '2 hours' FROM samples,"  # noqa: S608
            f" generate_series(1, {DAYS * 12 - 1}) each WHERE seconds IN (600, 3600) OR seconds = 300 AND each < 13"
            " OR seconds = 14400 AND each % 2 = 0 ON CONFLICT DO NOTHING"
        )
        cursor.execute("VACUUM ANALYZE samples")
        cursor.execute("SELECT count(*), pg_total_relation_size('samples') FROM samples")
        number, size = cursor.fetchone()
    print(f"a month: {number:,} rows, {size / 1e6:.0f} MB with indexes")


def _took(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return min(taken) * 1000


def _fresh(draw: random.Random, at: datetime) -> Any:
    from dags_app.models import ALL, FRESH, Sample

    number = draw.randrange(20)
    row = Sample(
        seconds=FRESH, by=ALL, at=at, site=f"T2_XX_Site{int(draw.triangular(0, 60, 5))}", campaign=f"Campaign{number}",
        release=f"CMSSW_14_{number % 8}_0",
    )  # fmt: skip
    kind = draw.random()
    if kind < 0.4:
        row.units, row.events, row.files = 1, 8000, 2
    elif kind < 0.8:
        row.step, row.core_seconds = f"Step{number % 12}", 30_000.0
    else:
        row.step, row.code, row.failures = f"Step{number % 12}", draw.randrange(8000, 8025), 1
    return row
