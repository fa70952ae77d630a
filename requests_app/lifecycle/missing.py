"""Input that is missing: files that wait for a site, and files that were left out. No request completes over either in silence.

Waiting costs no slot: the request is queued again until the next look (``INPUT_LOCATIONS_SECONDS``).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dags_app.planning.specs import WaitingFile
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.models import HoldCode, RequestStatus, Workflow
from requests_app.work import input_places
from requests_app.work.exclusions import exclusions_counted, exclusions_open
from requests_app.work.input_places import Places, locations_refresh, only_waiting_left, waiting_files
from requests_app.work.input_validity import validity_refresh
from requests_app.work.overrides import limits_of
from requests_app.work.spec import spec_of
from wms2.errors import PlanningRefused, ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.web.formatting import counted

#: Input files that wait longer for a site to be read at raise the alert input_missing.
_INPUT_MISSING_ALERT_SECONDS = 86_400.0

S = RequestStatus
#: Files that a reason for being held names; the page and the API list all.
NAMED = 20
CHECKED_IN = (S.QUEUED, S.PLANNING, S.ACTIVE, S.PARTIAL)


def wait_for_locations(evaluation: Evaluation) -> bool:
    """PLANNING with nothing to plan but files without a site: QUEUED until the next look. False when there are no such files."""
    why = _why_waiting(evaluation.request.workflow)
    if why:
        evaluation.transition(S.QUEUED, why, next_attempt_at=_next_check(), last_error=why)
    return bool(why)


def check_locations(evaluation: Evaluation) -> bool:
    """QUEUED, and it is time to look again; True while nothing but files without a site is left, and none has one by now. What
    completes early plans none of them.

    Looked for here and not in PLANNING, so that a request that waits for weeks takes no slot and changes no status.
    """
    request = evaluation.request
    workflow = Workflow.objects.filter(request=request).first()
    is_open = workflow is None or (workflow.input_closed_at is None and bool(workflow.input_dataset))
    paused = request.next_attempt_at is not None and request.next_attempt_at > clock.now()
    if workflow is None or is_open or paused or request.complete_early:
        return False
    spec = spec_of(workflow)
    if not only_waiting_left(workflow, spec):
        return False
    try:
        if validity_refresh(workflow=workflow, spec=spec, fenced=evaluation.fenced):
            return False  # what is left now, planning says
        locations_refresh(workflow=workflow, spec=spec, fenced=evaluation.fenced)
        places, rows = Places(workflow, spec), waiting_files(workflow).iterator(chunk_size=2000)
        waits = all(isinstance(places.of(row), WaitingFile) for row in rows)
    except (ServiceUnavailable, ServiceRejected) as error:
        evaluation.pause(error)
        return True
    except PlanningRefused:
        return False  # planning says so
    if waits:
        why = _why_waiting(workflow)
        evaluation.note(waiting_for=why, last_error=why, next_attempt_at=_next_check())
    return waits


def _why_waiting(workflow: Workflow) -> str:
    files = waiting_files(workflow)
    first = files.first()
    if first is None:
        return ""
    return f"waits for a site of {counted(files.count(), 'input file')}, e.g. {first.lfn}: {first.waiting_reason}"[:4000]


def _next_check() -> datetime:
    return clock.now() + timedelta(seconds=max(input_places.INPUT_LOCATIONS_SECONDS, in_force().retry_after_failure_seconds))


def alert_missing(evaluation: Evaluation) -> None:
    """Files that have waited too long for a site are a person's matter; also while other work of the request runs."""
    workflow: Workflow | None = getattr(evaluation.request, "workflow", None)
    if evaluation.request.status not in CHECKED_IN or workflow is None:
        return
    patience, files = timedelta(seconds=_INPUT_MISSING_ALERT_SECONDS), waiting_files(workflow)
    first = files.only("waiting_since", "waiting_reason", "lfn").first() if workflow.input_dataset else None
    long_ago = clock.now() - patience
    if first is None or first.waiting_since is None or first.waiting_since >= long_ago:
        alert_over(evaluation, "input_missing")
        if first is not None and first.waiting_since is not None:
            evaluation.again_at(first.waiting_since + patience)
        return
    many = counted(files.filter(waiting_since__lt=long_ago).count(), "input file")
    alert(evaluation.request, "input_missing", f"no site for {many}, e.g. {first.lfn}: {first.waiting_reason}")


def hold_over_exclusions(evaluation: Evaluation) -> bool:
    """HELD instead of complete when more files were left out than may be; says which."""
    request = evaluation.request
    left_out, wanted = exclusions_counted(request.workflow)
    most = limits_of(request, in_force()).max_excluded_fraction
    if left_out / wanted <= most:
        return False
    names = list(exclusions_open(request.workflow).order_by("lfn").values_list("lfn", "excluded_reason")[:NAMED])
    more = f"\n… and {left_out - len(names)} more" if left_out > len(names) else ""
    listed = "\n".join(f"{lfn}: {reason}" for lfn, reason in names)
    why = (
        f"all other work is done, but {left_out} of {counted(wanted, 'input file')} were left out "
        f"({left_out / wanted:.2%}, {most:.2%} may be)"
    )
    evidence = {"excluded": left_out, "wanted": wanted, "allowed": most, "files": [lfn for lfn, _ in names]}
    evaluation.hold(HoldCode.EXCLUDED, why, evidence, reported=f"{why}:\n{listed}{more}")
    return True
