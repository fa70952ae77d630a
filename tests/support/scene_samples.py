"""Seven days of samples, as rows: jobs by day and night, a pause of WMS2 itself, a site whose failures rise until it is banned.

The same numbers for the same moment each time. What happened is written as it is accounted and then added up by the life cycle's
own statement; how things stood is written as its looks would have left it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dags_app.models import FRESH, Sample, StateSample
from outputs_app.models import EffectState
from requests_app.lifecycle.sampling import samples_fold
from requests_app.models import RequestStatus

#: Site -> its share of all jobs.
SHARES = {
    "T1_US_FNAL": 0.33, "T2_CH_CERN": 0.22, "T1_DE_KIT": 0.16, "T2_DE_DESY": 0.13, "T2_US_Purdue": 0.10, "T2_UK_London_IC": 0.06
}  # fmt: skip
#: The one that goes bad, hours ago: its failures begin to rise, and it is banned.
BAD, RISES, BANNED = "T2_US_Purdue", 34.0, 9.0
#: Hours ago: WMS2 was off.
OFF = (63.0, 60.0)
#: Campaign -> its share, its release.
CAMPAIGNS = {
    "RunIII2024Summer24": (0.62, "CMSSW_14_0_19"),
    "Run3Summer23": (0.27, "CMSSW_13_0_18"),
    "Phase2Spring24": (0.11, "CMSSW_14_1_0"),
}
#: Site -> code, step and failed attempts an hour on an ordinary day.
FAILING = {
    "T1_US_FNAL": (50660, "Reco", 1.3), "T2_CH_CERN": (8021, "DIGIRaw", 1.7), "T1_DE_KIT": (50660, "Reco", 0.8),
    "T2_DE_DESY": (8028, "DIGIRaw", 0.4), BAD: (60311, "stageOut", 1.5), "T2_UK_London_IC": (99303, "cmsRun", 0.2)
}  # fmt: skip
_DAYS = 7
_MEAN_JOBS, _SWING, _QUIET_HOUR = 340.0, 100.0, 8.5
_UNITS_OF_A_JOB_HOUR, _EVENTS_OF_A_JOB_HOUR, _CORES = 0.17, 2_200, 8
#: Hours ago up to which there are looks and accounts each so many minutes; sorted by both.
_STEPS = ((7.0, 5), (26.0, 10), (24.0 * _DAYS, 60))


class _Look(NamedTuple):
    """A moment, how long it stands for, and how long ago it was."""

    at: datetime
    hours: float
    ago: float

    @property
    def jobs(self) -> Mapping[str, float]:
        """Running by site: fewer in the European morning, fewer at weekends, none at a banned site."""
        swing = -math.cos((self.at.hour + self.at.minute / 60 - _QUIET_HOUR) / 24 * math.tau)
        weekend = 0.8 if self.at.weekday() >= 5 else 1.0
        draw = random.Random(int(self.at.timestamp()))
        total = (_MEAN_JOBS + _SWING * swing) * weekend
        open_ones = {site: share for site, share in SHARES.items() if not (site == BAD and self.ago <= BANNED)}
        return {site: total * share / sum(open_ones.values()) * draw.uniform(0.93, 1.07) for site, share in open_ones.items()}


def samples_of_a_week(now: datetime, requests: Mapping[str, int]) -> None:
    """Both kinds of them, up to now; ``requests``: status -> how many there are."""
    looks = list(_looks(now))
    Sample.objects.bulk_create(row for look in looks for row in _happened(look))
    samples_fold(nullcontext, now + timedelta(minutes=5))
    StateSample.objects.bulk_create(_stood(now, looks, requests), batch_size=5000)


def _looks(now: datetime) -> Iterator[_Look]:
    ago, begins = 24.0 * _DAYS, datetime.fromtimestamp(now.timestamp() // 3600 * 3600, UTC) - timedelta(days=_DAYS)
    at = begins
    while at < now:
        ago = (now - at).total_seconds() / 3600
        minutes = next(each for hours, each in _STEPS if ago <= hours + 1)
        if not OFF[1] < ago <= OFF[0]:
            yield _Look(at, minutes / 60, ago)
        at += timedelta(minutes=minutes)


def _happened(look: _Look) -> Iterator[Sample]:
    for site, jobs in look.jobs.items():
        code, step, hourly = FAILING[site]
        draw = random.Random(int(look.at.timestamp()) * 7 + code)
        for campaign, (share, release) in CAMPAIGNS.items():
            hours = jobs * share * look.hours
            units = int(hours * _UNITS_OF_A_JOB_HOUR + draw.random())
            yield Sample(
                seconds=FRESH, at=look.at, by="all", site=site, campaign=campaign, release=release, units=units, files=2 * units,
                events=int(hours * _EVENTS_OF_A_JOB_HOUR), core_seconds=hours * 3600 * _CORES,
            )  # fmt: skip
        failed = int(hourly * _risen(site, look.ago) * look.hours * draw.uniform(0.4, 1.6) + draw.random())
        if failed:
            first = next(iter(CAMPAIGNS))
            yield Sample(
                seconds=FRESH, at=look.at, by="all", site=site, campaign=first, release=CAMPAIGNS[first][1], step=step, code=code,
                failures=failed,
            )  # fmt: skip


def _risen(site: str, ago: float) -> float:
    """How many times as many failures as on an ordinary day."""
    if site != BAD or ago >= RISES or ago <= BANNED:
        return 1.0
    return math.exp((RISES - ago) / (RISES - BANNED) * math.log(40))


def _stood(now: datetime, looks: list[_Look], requests: Mapping[str, int]) -> Iterator[StateSample]:
    for seconds, hours in ((300, 7.0), (600, 26.0), (3600, 24.0 * _DAYS), (86_400, 24.0 * _DAYS)):
        buckets: dict[datetime, list[_Look]] = {}
        for look in looks:
            if look.ago <= hours + 1:
                buckets.setdefault(datetime.fromtimestamp(look.at.timestamp() // seconds * seconds, UTC), []).append(look)
        for at, within in buckets.items():
            for (what, by, label), total in _sums(within, requests).items():
                yield StateSample(seconds=seconds, at=at, what=what, by=by, label=label, total=round(total, 1))


def _sums(looks: list[_Look], requests: Mapping[str, int]) -> dict[tuple[str, str, str], float]:
    found: dict[tuple[str, str, str], float] = {("looks", "", ""): len(looks)}

    def add(what: str, by: str, label: str, number: float) -> None:
        found[what, by, label] = found.get((what, by, label), 0.0) + number

    for look in looks:
        running = sum(look.jobs.values())
        waits = running * (0.35 + 0.15 * math.sin(look.ago / 5))
        for what, number in (("running", running), ("idle", waits)):
            add(what, "", "", number)
            add(what, "pool", "pool", number)
            for campaign, (share, _) in CAMPAIGNS.items():
                add(what, "campaign", campaign, number * share)
        for site, number in look.jobs.items():
            add("running", "site", site, number)
        _requests(add, look, requests)
    return found


def _requests(add: Any, look: _Look, requests: Mapping[str, int]) -> None:
    """Those that are complete became so one after the other."""
    done = RequestStatus.COMPLETED.value
    numbers = {status: number for status, number in requests.items() if status != done}
    numbers[done] = round(requests.get(done, 0) * (1 - look.ago / (24 * _DAYS + 2)))
    for status, number in numbers.items():
        add("requests", "status", status, number)
    add("requests", "", "", sum(numbers.values()))
    add("queued", "", "", numbers.get(RequestStatus.QUEUED.value, 0) + round(3 + 3 * math.sin(look.ago / 11)))
    add("effects", "status", EffectState.PENDING.value, 4 + round(3 * math.sin(look.ago / 7)))
    add("effects", "", "", 4 + round(3 * math.sin(look.ago / 7)))
