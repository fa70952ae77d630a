"""The whole installation at a glance (spec 7.1, ``GET /status``): counts by status, and what waits for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from django.db.models import Count

from dags_app.models import DAG, LIVE_DAG
from outputs_app.models import OPEN_EFFECT, BlockStatus, Effect
from requests_app.models import DeadLetter, DeadLetterKind, HoldCode, RequestStatus, ServiceLevel, WorkflowStatus
from requests_app.selectors.admission import AdmissionState, admission_state
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_state
from requests_app.selectors.reqmgr2 import ReqMgr2State, reqmgr2_state
from requests_app.service_level import service
from requests_app.work.groups import PARENTS, SIBLINGS
from sites_app.models import Site, SiteStatus
from wms2.conf import conf
from wms2.metrics.row_counts import row_counts
from wms2.runtime.sql import sql_rows
from wms2.work.workers import pool_problems

_LONGEST = """
SELECT status, (
  SELECT min(status_since) FROM requests WHERE requests.status = asked.status AND waiting_for NOT LIKE ALL (%(others)s)
) FROM unnest(%(statuses)s::text[]) asked(status)
"""


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """What the database keeps count of (``wms2.metrics.row_counts``); each mapping has every status, zeros included."""

    requests: dict[str, int]
    held: dict[str, int]
    alerted_requests: int
    workflows: dict[str, int]
    blocks: dict[str, int]


@dataclass(frozen=True, slots=True)
class SystemSummary(StoredCounts):
    """These, and what is counted beside them: what goes on, and sites."""

    instance: str
    environment: str
    dags_live: int
    effects_open: dict[str, int]
    sites: dict[str, int]
    admission: AdmissionState
    lifecycle: LifecycleState
    reqmgr2: ReqMgr2State
    service: ServiceLevel
    worker_pools: dict[str, str]
    dead_letters: dict[str, int]


def stored_counts() -> StoredCounts:
    """One query over a short table."""
    stored = row_counts()
    requests, held, alerted = Counter[str](), Counter[str](), 0
    for kind, number in stored["requests"].items():
        status, hold_code, is_alerted = kind.split(":")
        requests[status] += number
        held[hold_code] += number * (status == RequestStatus.HELD)
        alerted += number * (is_alerted == "true")
    return StoredCounts(
        requests=_of_all(RequestStatus.values, requests),
        held=_of_all(HoldCode.values, held),
        alerted_requests=alerted,
        workflows=_of_all(WorkflowStatus.values, stored["workflows"]),
        blocks=_of_all(BlockStatus.values, stored["processing_blocks"]),
    )


def _of_all(known: list[str], counted: Mapping[str, int]) -> dict[str, int]:
    return {value: counted.get(value, 0) for value in known}


def longest_in_status(statuses: Sequence[str]) -> dict[str, datetime | None]:
    """Since when the request is in its status that is longest in it, without those that wait for other requests, which have no
    limit; a look into an index for each status."""
    return dict(sql_rows(_LONGEST, {"statuses": list(statuses), "others": [f"{PARENTS}%", f"{SIBLINGS}%"]}))


def dead_letter_counts() -> dict[str, int]:
    """By kind, those that there are; one query."""
    return dict(DeadLetter.objects.order_by().values_list("kind").annotate(number=Count("pk")))


def system_summary() -> SystemSummary:
    """A fixed number of queries."""
    stored = stored_counts()
    effects = Effect.objects.filter(state__in=OPEN_EFFECT).order_by().values_list("state")
    sites = Site.objects.order_by().values_list("status")
    return SystemSummary(
        **{each.name: getattr(stored, each.name) for each in fields(stored)},
        instance=conf().instance,
        environment=conf().environment,
        dags_live=DAG.objects.filter(status__in=LIVE_DAG).count(),
        effects_open=_of_all([state.value for state in OPEN_EFFECT], dict(effects.annotate(number=Count("*")))),
        sites=_of_all(SiteStatus.values, dict(sites.annotate(number=Count("*")))),
        admission=admission_state(queued=stored.requests[RequestStatus.QUEUED]),
        lifecycle=lifecycle_state(),
        reqmgr2=reqmgr2_state(),
        service=service(),
        worker_pools={each.queue: str(each) for each in pool_problems()},
        dead_letters=_of_all(DeadLetterKind.values, dead_letter_counts()),
    )
