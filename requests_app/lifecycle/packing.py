"""Packing the directories of DAGs that nothing may want any more (ADR 0029), then COMPLETED -> ARCHIVED: after a grace, with
nothing owed, the packs of a request are moved, and read from there (ADR 0020).

By beats of their own: no evaluation looks at a request at its end. Owns which directories those are; ``dags_app.packs`` packs.
Copied, recorded, and only then removed where it was, a pack can be read at any moment; what a crash leaves is done by the next
pass.
"""

from __future__ import annotations

import time
import zipfile
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from dags_app import packs
from dags_app.models import DAG, LIVE_DAG
from dags_app.services.orphans import ENDED
from outputs_app.models import OPEN_EFFECT, BlockStatus, CaseState, Effect, IntegrityCase, ProcessingBlock
from requests_app.alerts import report_broken
from requests_app.lifecycle.retention import AT_AN_END
from requests_app.models import Request, RequestStatus
from requests_app.states import transition
from sites_app.models import Schedd, strays_of
from sites_app.schedds import submit_roots
from wms2.conf import conf
from wms2.errors import StaleState, Wms2Error
from wms2.metrics.series import DAGS_PACKED_TOTAL
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
ACTOR = "archiver"
#: The directories of a request's DAGs become one file each when it has been at an end for so many days.
PACK_AFTER_DAYS = 7.0
#: Nothing further is begun after so long; beat comes again.
RUN_SECONDS = 60.0
#: One that could not be packed, or whose packing was cut short, is tried again then. No packing takes as long.
TRY_AGAIN = timedelta(days=1)
#: A DAG whose queue was given up and has not been seen since.
LOST = Q(lost_confirmed_at__isnull=False, lost_settled_at__isnull=True)
#: A DAG of which a schedd may still have jobs.
UNSETTLED = LOST | Q(outcome__unproved=True)
#: Blocks of which nothing is to come.
_SETTLED = (BlockStatus.ARCHIVED, BlockStatus.GIVEN_UP, BlockStatus.INVALIDATED)


def dags_pack() -> int:
    """Pack one directory after the other for a while; returns how many. With no transaction open while it packs."""
    until, packed = time.monotonic() + RUN_SECONDS, 0
    while time.monotonic() < until:
        dag = _claim()
        if dag is None:
            break
        with row_by_itself("packs", dag.pk, partial(_not_packed, dag)):
            packed += _pack(dag)
    return packed


def _not_packed(dag: DAG, problem: str) -> None:
    DAG.objects.filter(round_id=dag.round_id, directory_id=dag.directory_id).update(pack_problem=problem)
    DAGS_PACKED_TOTAL.labels("failed").inc()


def packable(now: datetime) -> QuerySet[DAG]:
    """The first DAG of each directory that may be packed, the longest untried first."""
    archived = conf().archive_after_days
    wanted = Q(workflow__request__status_since__lt=now - timedelta(days=PACK_AFTER_DAYS))
    if archived:
        completed = Q(workflow__request__status=RequestStatus.COMPLETED)
        wanted |= completed & Q(workflow__request__status_since__lt=now - timedelta(days=archived))
    untried = Q(pack_tried_at__isnull=True) | Q(pack_tried_at__lt=now - TRY_AGAIN)
    rows = dags_at_rest().filter(wanted, untried, packed_at__isnull=True)
    return rows.order_by(F("pack_tried_at").asc(nulls_first=True))


def dags_at_rest() -> QuerySet[DAG]:
    """The first DAG of each directory whose request is at an end, so that no rescue follows; none of its workflow's jobs can be
    there still, and nothing of it is owed."""
    others = DAG.objects.filter(workflow=OuterRef("workflow"))
    owed = Effect.objects.filter(
        request=OuterRef("workflow__request__pk"), state__in=OPEN_EFFECT, epoch=OuterRef("workflow__request__epoch")
    )
    astray = DAG.objects.filter(pk__in=seen_in_queues()).values("round_id")
    rows = DAG.objects.filter(
        ~Exists(others.filter(Q(status__in=LIVE_DAG) | UNSETTLED)),
        ~Exists(owed),
        directory_id=F("pk"),
        workflow__request__status__in=AT_AN_END,
    )
    rows = rows.exclude(workflow__request__status=RequestStatus.CLEANED)  # its directories are gone
    return rows.exclude(round_id__in=astray)


def seen_in_queues() -> list[str]:
    """Ids of DAGs that have ended and of which a schedd still has jobs."""
    seen = [each for orphans in Schedd.objects.values_list("orphans", flat=True) for each in strays_of(orphans)]
    return [each["dag_id"] for each in seen if each["why"] == ENDED]


def _claim() -> DAG | None:
    """The next one, which no other process takes before ``TRY_AGAIN``; None without one, or if another process was faster."""
    now = clock.now()
    dag = packable(now).only("submit_dir", "round_id", "directory_id", "pack_tried_at").first()
    if dag is None:
        return None
    untouched = DAG.objects.filter(pk=dag.pk, packed_at__isnull=True, pack_tried_at=dag.pack_tried_at)
    return dag if untouched.update(pack_tried_at=now) else None


def _pack(dag: DAG) -> bool:
    rows = DAG.objects.filter(round_id=dag.round_id, directory_id=dag.directory_id)
    try:
        size = packs.pack(Path(dag.submit_dir))
    except (OSError, Wms2Error, RuntimeError, zipfile.BadZipFile) as error:
        _not_packed(dag, str(error))
        log.error("DAG directory not packed, tried again later", dag_id=str(dag.pk), path=dag.submit_dir, error=str(error))
        return False
    rows.update(packed_at=clock.now(), pack_problem="")
    DAGS_PACKED_TOTAL.labels("packed").inc()
    log.info("DAG directory packed", dag_id=str(dag.pk), path=str(packs.pack_path(Path(dag.submit_dir))), size_bytes=size)
    return True


# --- archiving


def requests_archive() -> int:
    """Archive one request after the other for a while; returns how many. With no transaction open while packs are copied."""
    until, archived = time.monotonic() + RUN_SECONDS, 0
    if not conf().archive_after_days:
        return 0
    of_it = {"workflow__request": OuterRef("request_name")}
    owed = Effect.objects.filter(request=OuterRef("pk"), state__in=OPEN_EFFECT, epoch=OuterRef("epoch"))
    dags = DAG.objects.filter(directory_id=F("pk"), **of_it)
    rows = Request.objects.filter(
        ~Exists(owed),
        ~Exists(IntegrityCase.objects.filter(request=OuterRef("pk"), state=CaseState.IN_PROGRESS)),
        ~Exists(ProcessingBlock.objects.filter(**of_it).exclude(status__in=_SETTLED)),
        ~Exists(dags.exclude(pk__in=dags_at_rest().values("pk"))),
        status=RequestStatus.COMPLETED,
        status_since__lt=clock.now() - timedelta(days=conf().archive_after_days),
    )
    broken: list[str] = []
    for request in rows.order_by("status_since").iterator():
        if time.monotonic() > until:
            break
        with row_by_itself("archive", request, partial(_not_archived, request, broken)):
            archived += _archive(request)
    if broken:  # shown as the task's failure, too
        raise Wms2Error(f"not archived, tried again later: {broken[0]}")
    return archived


def _not_archived(request: Request, broken: list[str], problem: str) -> None:
    broken.append(f"{request.request_name}: {problem}")
    report_broken(f"not archived: {problem}", pk=request.pk)


def archive_root() -> Path:
    """Where packs of archived requests lie, a directory for each request."""
    return conf().archive_root or conf().state_dir / "archive"


def _archive(request: Request) -> bool:
    """Whether it is; not while one of its directories is not packed."""
    place, size_bytes, packed = archive_root() / request.request_name, 0, 0
    for dag in DAG.objects.filter(workflow__request=request, directory_id=F("pk")).order_by("created_at"):
        if dag.packed_at is None and not packs.is_there(dag.submit_dir) and packs.is_readable(Path(dag.submit_dir).parents[1]):
            continue  # it was lost, or never written
        if dag.packed_at is None:
            return False
        size_bytes += _move(dag, place)
        packed += 1
    evidence = {"packs": packed, "size_bytes": size_bytes, "place": str(place), "at": clock.now().isoformat()}
    try:
        transition(request, RequestStatus.ARCHIVED, actor=ACTOR, reason=f"its {packed} packs lie in {place}", evidence=evidence)
    except StaleState:
        return False
    for root in submit_roots():
        with suppress(OSError):
            (root / request.request_name).rmdir()
    return True


def _move(dag: DAG, place: Path) -> int:
    """Bytes of the pack, which lies in the archive and nowhere else."""
    now, then = Path(dag.submit_dir), place / str(dag.pk)
    target = packs.pack_path(then)
    if now != then:
        packs.pack_copy(now, target)
        crash_point("archive.called")
        DAG.objects.filter(round_id=dag.round_id, directory_id=dag.directory_id).update(submit_dir=str(then))
        crash_point("archive.recorded")
    for former in (now, *(root / dag.workflow.request_id / str(dag.pk) for root in submit_roots())):
        pack = packs.pack_path(former)
        if pack.resolve() != target.resolve():  # the archive may be a submit root, under this or another path
            pack.unlink(missing_ok=True)
    return target.stat().st_size
