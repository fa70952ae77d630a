"""Where a request stands, in sentences: what its status means for it now, what happens next, and what a person should do.

For REST, the pages and the admin; shift instructions at length are in docs/runbook.md. Pure functions over rows already read.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from dags_app.models import DAG
from dags_app.services.stop import StopMode
from requests_app.models import HoldCode, Request, RequestStatus, ShownStatus, StopIntent
from wms2.web.formatting import ago, word

S = RequestStatus
H = HoldCode

_NEXT: dict[RequestStatus, str] = {
    S.NEW: "WMS2 leaves it alone until it is submitted.",
    S.SUBMITTED: "Its configuration and its input files are being read; then it is queued.",
    S.QUEUED: "It is planned as soon as a slot is free and its turn has come.",
    S.PLANNING: "Its work is split and written down as a DAG, which is then submitted to a schedd.",
    S.ACTIVE: "HTCondor runs its DAG. What is done is registered as it comes; once all is registered its outputs are validated.",
    S.PARTIAL: "Its DAG ended with work units not done. It is rescued, or held if too many failed.",
    S.RESUBMITTING: "Its DAG is prepared to go on from its rescue file; then it is queued.",
    S.HELD: "Nothing, until an operator releases or aborts it. What is done stays registered.",
    S.VALIDATING_OUTPUTS: "Its blocks are compared with DBS, Rucio and the storage, then its events counted again. Its unmerged"
    " files stay meanwhile.",
    S.WAITING_INTEGRITY: "Once its integrity cases are closed, what they touched is validated again. Its unmerged files stay"
    " meanwhile.",
    S.VALIDATED_OUTPUTS: "DBS says whether it has enough events: then its unmerged files are removed; if not, it is extended.",
    S.REMOVING_FILES: "Its datasets become VALID in DBS and its unmerged files are removed; then it is completed.",
    S.COMPLETED: "Nothing but its archival after some days; everything is done, registered and validated.",
    S.ARCHIVED: "Nothing more; its packed DAG directories were moved, and can be read from there.",
    S.FAILED: "Nothing more; it was given up. What was done stays registered.",
    S.ABORTED: "Nothing more; it was aborted. What was done stays registered, registrations under way are finished.",
    S.CLEANING: "Everything it made is being removed.",
    S.CLEANED: "Nothing more; what it made is removed, or left to Rucio to remove. Its sites are looked at once more.",
}
_AFTER_STOP: dict[StopIntent, str] = {
    StopIntent.RESUME: "it goes on from its rescue file",
    StopIntent.STEP: "it goes on with its next production step",
    StopIntent.MOVE: "it goes on at another schedd",
    StopIntent.HOLD: "it is held",
    StopIntent.RESTART: "it is failed and a clone takes its place",
    StopIntent.FAIL: "it is failed",
    StopIntent.ABORT: "it is aborted",
    StopIntent.CLEAN: "everything it made is removed",
}
_ADVICE: dict[HoldCode, str] = {
    H.REFUSED: "Correct the cause in ReqMgr2, ConfigCache or DBS and release, or abort and import a corrected document.",
    H.OPERATOR: "Ask the operator who held it; then release.",
    H.TIMEOUT: "Remove the cause named in the reason, then release.",
    H.LEDGER: "Do not release before it is understood: work was lost, doubled or invented. Report it.",
    H.SUBMISSION: "Repair the schedd's or the directory's permissions, then release.",
    H.THRESHOLD: "Look at the failures: one site, one input, one step? Then release; done units stay done.",
    H.RESCUES: "Look at the failures that keep coming back. A release allows as many rescues again.",
    H.ABORT_CODE: "Find the node that ended with 43 in DAGMan's log. A release plans what is left anew.",
    H.REMOVED: "Find out who removed the DAGMan job. A release goes on from the rescue file.",
    H.QUEUE_LOST: "Release it: what is done counts, what is left is planned anew. Let the schedd be repaired first.",
    H.SHORT: "See which input is left and why, or why DBS has too few events; a release may say what share is enough.",
    H.EXCLUDED: "Have the files repaired and let them in again, or accept in the release that it completes without them.",
    H.RUN_ELSEWHERE: "Make sure that no other system runs it; then release. If one does, abort it here.",
    H.FAILED_ELSEWHERE: "Find out who set it and why. Abort it here, or have it assigned again in ReqMgr2, then release.",
    H.PARENT: "Restart the request that it depends on, or change what it depends on; then release.",
    H.OUTCOME_UNKNOWN: "Make sure that no job of its last DAG runs any more; then release: what is done stays done.",
}
_ALERTS: dict[str, tuple[str, str]] = {
    "dark_files": (
        "Merged files of it are not in Rucio for so long that CMS's consistency checks will delete them as dark.",
        "Have their registration go on: repair and retry it, or release the request; else discard the files knowingly.",
    ),
    "units_unaccounted": ("Work units are done, their manifests are missing or wrong.", "Look at the units' merge_output.json."),
    "sites_unavailable": ("Some of its work units have no site left.", "Lift a ban, or enable a site, and stop it to resume."),
    "pileup_elsewhere": (
        "The pileup has left all sites of some of its work units.",
        "Have it placed there again and stop the request to resume; or stop it when the others are done: they are planned anew.",
    ),
    "all_failing": ("No job of its DAG has done well yet.", "Look at its errors: one cause? Hold it, or let the rescues go on."),
    "site_starts_nothing": (
        "A site has started none of its jobs, while others did.",
        "Units of which nothing has begun leave by themselves, sooner by Leave sites of the DAG; ban the site, or ask it why.",
    ),
    "dagman_held": ("Its DAGMan job is held; nothing of its DAG goes on.", "Remove the cause, then release the DAG."),
    "ledger_violation": ("The account of its work does not hold.", "It is being stopped; report it."),
    "input_unreadable": ("Whether its input has grown cannot be read.", "See whether the dataset exists and may be read."),
    "unmerged_unprotected": (
        "MSUnmerged may delete its unmerged files: no active request in ReqMgr2 has their directories.",
        "See in ReqMgr2 whether the request is there and active; else have its directories left out there.",
    ),
    "input_missing": ("Input files have had no site for long.", "Have their replicas made or repaired, or leave them out."),
    "lumis_refused": ("Some lumis can be in no job.", "See which and why; the rest is done without them."),
    "schedd_unreachable": ("Its schedd is silent.", "Bring the schedd back; do not abort because of it."),
    "queue_suspected": (
        "Its schedd answers and knows nothing of its DAG.",
        "Find out what happened at the schedd; if its queue is lost, confirm that on the schedd's page.",
    ),
    "dag_returned": ("A DAG of it that had been given up was in a queue again.", "It is being removed; see why it came back."),
    "outcome_unknown": (
        "Its DAG left the queue, and nothing proves how it ended.",
        "Look at history and files of the DAG; if they cannot show it, hold it, then release.",
    ),
    "stop_unanswered": ("The stop cannot be proved: the schedd does not answer.", "Bring the schedd back."),
    "numbers_abandoned": (
        "Work units that had not failed were given up, because no rescue can be run; as many events are made anew.",
        "See why: pileup that has moved needs nothing; find out why DAGMan left no rescue file.",
    ),
    "effect_refused": ("DBS or Rucio refused a registration.", "Repair the cause, then retry it, or discard it."),
    "effect_dead": ("A registration failed for too long.", "Repair the cause, then retry it, or discard it."),
    "extension_waits": (
        "Its datasets are short of events, and it is not extended now.",
        "Look at its errors; if it is enough, complete it early, or hold it and release it with another pass fraction.",
    ),
    "leftovers_stay": ("Unmerged files of it could not be removed.", "See which and why; the cleaner goes on trying."),
    "differences": (
        "DBS or Rucio do not hold what was registered.",
        "Look at the differences on its page; repair them outside, or accept them.",
    ),
    "harvest_failed": ("DQM harvesting has failed; its page says why.", "Repair the cause, then harvest again, or discard it."),
    "cases_wait": ("Integrity cases of it wait for a decision.", "Decide them on the page Cases."),
    "forgotten": ("There was something to do, and nothing woke it; it goes on now.", "Report it: a defect of WMS2."),
    "slow_queued": ("It has been queued for very long.", "See what it waits for."),
    "slow_dispatch": ("No job of its DAG has begun for very long.", "See why its jobs match no slot."),
    "slow_active": ("It has been active for very long.", "See whether its work units still advance."),
    "slow_cleaning": ("It has been cleaned for very long.", "Repair what it waits for, or clean it again and accept the rest."),
    "slow_stopping": ("It has been stopping for very long.", "See whether its schedd answers."),
    "slow_validating_outputs": (
        "Its outputs are not validated for very long.",
        "See what it waits for: a service, a site, a job.",
    ),
    "slow_validated_outputs": ("It has waited for very long with its outputs validated.", "See what it waits for."),
    "slow_removing_files": (
        "Its unmerged files are not removed for very long.",
        "See at which site, and whether jobs run there.",
    ),
}


class Explanation(NamedTuple):
    """``why``: what holds it where it is, in its own words; ``next``: what happens by itself; ``todo``: for a person."""

    why: str
    alert: str
    next: str
    todo: str


def explain(request: Request, now: datetime | None = None, dag: DAG | None = None) -> Explanation:
    """Sentences about one request, each may be empty; ``dag`` is its live one, which decides what happens next."""
    status = word(S, request.status)
    return Explanation(
        why=_why(request, status, now or timezone.now()),
        alert=alert_sentence(request.alert_code) if request.alert_code else "",
        next=_next(request, status, dag),
        todo=_todo(request, status),
    )


def alert_sentence(code: str) -> str:
    """What an alert says."""
    if code in _ALERTS:
        return _ALERTS[code][0]
    return f"Stuck: {code.removeprefix('stuck_').replace('_', ' ')}." if code.startswith("stuck_") else code


def _why(request: Request, status: RequestStatus, now: datetime) -> str:
    if status is S.HELD:
        return f"{word(HoldCode, request.hold_code).label}: {request.hold_reason}"
    if request.next_attempt_at and request.next_attempt_at > now:
        again = f"next attempt {ago(request.next_attempt_at, now)}"
        return f"{request.last_error or request.waiting_for} ({again})" if request.last_error or request.waiting_for else again
    return f"Waits for {request.waiting_for}" if request.waiting_for else ""


def _next(request: Request, status: RequestStatus, dag: DAG | None) -> str:
    if status is S.STOPPING:
        intent = word(StopIntent, request.stop_intent)
        after = _AFTER_STOP.get(intent)
        if after is None:
            return ""
        if dag is not None and dag.stop_mode == StopMode.DRAIN and intent.goes_on:
            return f"Work units that run finish first, no other starts; once queue and history prove its DAG gone, {after}."
        return f"Its DAG is being removed; once queue and history prove it gone, {after}."
    if request.status_shown == ShownStatus.COMPLETING:
        return f"It ends what it has; {request.derived_by} does what it has not used. {_NEXT[status]}"
    if request.status_shown == ShownStatus.RECOVERING:
        return f"It had completed; files of it were lost, and are made again. {_NEXT[status]}"
    return _NEXT.get(status, "")


def _todo(request: Request, status: RequestStatus) -> str:
    if status is S.HELD:
        return hold_advice(request.hold_code)
    return alert_advice(request.alert_code) if request.alert_code else ""


def hold_advice(code: str) -> str:
    """What to do about a request that is held for this."""
    return _ADVICE.get(word(HoldCode, code), "")


def alert_advice(code: str) -> str:
    """What to do about an alert."""
    return _ALERTS.get(code, ("", "See its last error."))[1]
