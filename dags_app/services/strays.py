"""DAGMan jobs of DAGs that have ended: a queue that was given up has come back, or a submission turned up after its grace.

Owns recognizing them, and noticing that a lost DAG's job is proved gone. Removing them is the cycle's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from dags_app.models import DAG, LIVE_DAG
from sites_app.models import Schedd
from wms2.adapters.types import DagmanAd, JobStatus


@dataclass(frozen=True, slots=True)
class Stray:
    """A DAGMan job in a queue that must not run: its DAG's row has ended, or has been submitted again since."""

    dag: DAG
    cluster: int
    fence: int | None
    being_removed: bool


def strays_among(outer: Iterable[DagmanAd]) -> tuple[Stray, ...]:
    """Those among the outer DAGMan jobs of a queue. A DAG ends only after its job was seen missing, so none ends ordinarily."""
    jobs = [ad for ad in outer if _is_uuid(ad.dag_id)]
    rows = DAG.objects.filter(pk__in={ad.dag_id for ad in jobs}).only("status", "fence", "dagman_cluster_id")
    standing = {str(dag.pk): dag for dag in rows}
    astray = [ad for ad in jobs if ad.dag_id in standing and _is_stray(ad, standing[ad.dag_id])]
    if not astray:
        return ()
    dags = {str(dag.pk): dag for dag in _with_request([ad.dag_id for ad in astray])}
    return tuple(Stray(dags[ad.dag_id], ad.cluster, ad.fence, ad.job_status == JobStatus.REMOVED) for ad in astray)


def _is_stray(ad: DagmanAd, dag: DAG) -> bool:
    if dag.status not in LIVE_DAG:
        return True
    # a READY one has no number yet and may adopt whichever attempt it finds; the number that is recorded is the DAG's own
    another = dag.dagman_cluster_id not in ("", str(ad.cluster))
    return another and ad.fence is not None and ad.fence < dag.fence


def _with_request(ids: list[str]) -> QuerySet[DAG]:
    rows = DAG.objects.filter(pk__in=ids).select_related("schedd", "workflow__request")
    return rows.defer("workflow__psets", "workflow__spec", "workflow__request__request_data")


def lost_settle(schedd: Schedd, in_queue: Iterable[str], now: datetime) -> None:
    """The schedd has answered: lost DAGs that are not in its queue are proved gone there."""
    waiting = DAG.objects.filter(schedd=schedd, lost_confirmed_at__isnull=False, lost_settled_at__isnull=True)
    there = set(in_queue)
    gone = [pk for pk in waiting.exclude(status__in=LIVE_DAG).values_list("pk", flat=True) if str(pk) not in there]
    DAG.objects.filter(pk__in=gone).update(lost_settled_at=now)


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
