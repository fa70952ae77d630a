"""COMPLETED -> ARCHIVED: after a grace, with nothing owed, the packs of its DAGs are moved, and read from there (ADR 0082).

By a beat of its own: no evaluation looks at a request at its end. ``packing`` makes the packs. Copied, recorded, and only then
removed where it was, a pack can be read at any moment; what a crash leaves is done by the next pass.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import structlog
from django.db.models import Exists, F, OuterRef

from dags_app import packs
from dags_app.models import DAG
from outputs_app.models import OPEN_EFFECT, BlockStatus, CaseState, Effect, IntegrityCase, ProcessingBlock
from requests_app.lifecycle.packing import RUN_SECONDS, dags_at_rest
from requests_app.models import Request, RequestStatus
from requests_app.states import transition
from sites_app.schedds import submit_roots
from wms2 import clock
from wms2.conf import conf
from wms2.crash import crash_point
from wms2.errors import StaleState, Wms2Error

log = structlog.get_logger(__name__)
ACTOR = "archiver"
_SETTLED = (BlockStatus.ARCHIVED, BlockStatus.GIVEN_UP, BlockStatus.INVALIDATED)


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
    failed: Exception | None = None
    for request in rows.order_by("status_since").iterator():
        if time.monotonic() > until:
            break
        try:
            archived += _archive(request)
        except (OSError, Wms2Error) as error:
            log.error("not archived, tried again later", request_name=request.request_name, error=str(error))
            failed = error
    if failed is not None:
        raise failed
    return archived


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
    if now != then:
        packs.pack_copy(now, packs.pack_path(then))
        crash_point("archive.called")
        DAG.objects.filter(round_id=dag.round_id, directory_id=dag.directory_id).update(submit_dir=str(then))
        crash_point("archive.recorded")
        packs.pack_path(now).unlink()
    else:
        for root in submit_roots():
            packs.pack_path(root / dag.workflow.request_id / str(dag.pk)).unlink(missing_ok=True)
    return packs.pack_path(then).stat().st_size
