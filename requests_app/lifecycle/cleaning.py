"""CLEANING: it stays until nothing of the request is valid in DBS, kept by a rule, or at a site (ADR 0021).

Effects take its outputs back, then the cleaner has jobs remove its files; here it is followed, and its directories go last, since
they show which files there are. Any step may be repeated.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import structlog

from dags_app.models import DAG, Leftover
from dags_app.packs import is_readable, is_there, pack_path
from dags_app.planning.writer import AGAIN
from outputs_app.effects.invalidation import TAKING_BACK
from outputs_app.models import SETTLED_EFFECT, Effect
from requests_app.lease import Evaluation
from requests_app.lifecycle.cleaner import CLEANER_GRACE_DAYS
from requests_app.lifecycle.packing import LOST, archive_root, seen_in_queues
from requests_app.models import Request, RequestStatus, Workflow
from requests_app.services.cleaning import cleaning_evidence
from requests_app.work.planner import dag_id
from sites_app.schedds import submit_roots
from sites_app.submit_roots import root_refused
from wms2.conf import conf
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.web.formatting import counted

log = structlog.get_logger(__name__)


def handle_cleaning(evaluation: Evaluation) -> None:
    """CLEANED once nothing is left; otherwise say what is waited for.

    Its sites are looked at once more after the cleaner's grace: a job whose DAGMan was removed may have gone on writing.
    """
    request = evaluation.request
    waits = _effects_left(request) or _queues_left(request) or _leftovers_left(request) or _directories_remove(request)
    if waits:
        evaluation.again_next_cycle()
        evaluation.note(waiting_for=waits)
        return
    crash_point("clean.called")
    with evaluation.fenced():
        again, evidence = clock.now() + timedelta(days=CLEANER_GRACE_DAYS), cleaning_evidence(request)
        rows = Leftover.objects.filter(unit__workflow__request=request)
        rows.update(settled_at=None, job=None, next_try_at=again)
        evaluation.transition(RequestStatus.CLEANED, "nothing of it is left outside but what Rucio removes", evidence)
    _tidy(request)


def _effects_left(request: Request) -> str:
    owed = Effect.objects.filter(request=request, kind__in=TAKING_BACK, epoch=request.epoch).exclude(state__in=SETTLED_EFFECT)
    first = owed.order_by("-last_error", "id").first()
    if first is None:
        return ""
    why = f" ({first.state}): {first.last_error}" if first.last_error else ""
    return f"{counted(owed.count(), 'step')} that take its outputs back, e.g. {first.get_kind_display()}{why}"


def _queues_left(request: Request) -> str:
    dags = DAG.objects.filter(workflow__request=request)
    seen = dags.filter(pk__in=seen_in_queues()).first()
    if seen is not None:
        return f"DAG {seen.pk}, which has ended, to leave the queue of {seen.schedd_name}"
    lost = dags.filter(LOST).first()
    return f"the queue of {lost.schedd_name}, which was given up as lost, to be seen again" if lost is not None else ""


def _leftovers_left(request: Request) -> str:
    """What sites may still have: rounds that were not looked at yet, and units."""
    off = "; the cleaner is switched off" if not conf().cleaner_enabled else ""
    rounds = DAG.objects.filter(workflow__request=request, leftovers_at__isnull=True).values("round_id").distinct().count()
    if rounds:
        return f"the cleaner to look for what {counted(rounds, 'round')} left at sites{off}"
    left = Leftover.objects.filter(unit__workflow__request=request, settled_at__isnull=True)
    first = left.order_by("-tries", "id").first()
    if first is None:
        return ""
    off = off or ("; the cleaner leaves this site out" if first.site in conf().cleaner_off_sites else "")
    why = first.problem or "its job has not ended"
    return f"files of {counted(left.count(), 'work unit')} to be removed, e.g. at {first.site}{off}: {why}"


def _directories_remove(request: Request) -> str:
    """Of its DAGs, packed or not, wherever they lie by now; why they stay, if they do. Their parent stays: it proves that its
    file system is there."""
    try:
        for place in _directories(request):
            if not place.parent.is_dir() and not is_readable(place.parent.parent):
                return f"{place.parent.parent}, which is away, for its submit directories to be removed"
            if is_there(str(place)) and (why := _not_its_own(place, request.request_name)):
                return f"its submit directory {place} to be removed: {why}"
            pack_path(place).unlink(missing_ok=True)
            if place.exists():
                shutil.rmtree(place)
    except OSError as error:
        return f"its submit directories to be removed: {error}"
    return ""


def _directories(request: Request) -> set[Path]:
    return {Path(place) for place in DAG.objects.filter(workflow__request=request).values_list("submit_dir", flat=True)}


def _not_its_own(place: Path, request_name: str) -> str:
    """Why a directory that a row names is not removed: only ``root/request/dag`` is, with what the planner may put between, below
    a root that is WMS2's own."""
    why = f"it is in no directory named {request_name}: look what it is, and remove it by hand"
    for within in (place.parent.parent, place.parent):
        if within.name == request_name:
            if ".." in place.parts or any(path.is_symlink() for path in {place, place.parent, within}):
                return "a part of its path is a link, or '..': look what it is, and remove it by hand"
            why = "" if within.parent == archive_root() else root_refused(within.parent)
            if not why:
                break
    return why


def _tidy(request: Request) -> None:
    """What attempts at planning or packing that died have left under the ids of its DAGs, or of the next; all else stays."""
    keys = [str(pk) for pk in DAG.objects.filter(workflow__request=request).values_list("pk", flat=True)]
    workflow = Workflow.objects.filter(request=request).first()
    if workflow is not None:
        keys.append(dag_id(workflow, workflow.rounds.count()))
    for place in (root / request.request_name for root in (*submit_roots(), archive_root())):
        if place.is_symlink() or not place.is_dir():
            continue
        for key in keys:
            for path in (
                place / key,
                *place.glob(f".{key}.*"),
                *place.glob(f"{AGAIN}*/{key}"),
                *place.glob(f"{AGAIN}*/.{key}.*"),
            ):
                if path.is_file():
                    path.unlink(missing_ok=True)
                else:
                    shutil.rmtree(path, ignore_errors=True)
        for path in (*place.glob(f"{AGAIN}*"), place):
            with suppress(OSError):
                path.rmdir()
        if place.exists():
            log.warning("directory of a cleaned request stays, something else is in it", path=str(place))
