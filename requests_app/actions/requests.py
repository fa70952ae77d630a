"""Operations on requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dags_app.services.stop import StopMode
from outputs_app.actions import COMPARED
from requests_app import services
from requests_app.models import CleanupPolicy, Request, RequestStatus
from requests_app.selectors.requests import names_about, release_repeated
from requests_app.services import preview
from requests_app.services.cleaning import clean_refused
from requests_app.services.decisions import (
    MAX_PRIORITY,
    abort_refused,
    compare_refused,
    complete_refused,
    hold_refused,
    keep_refused,
    priority_refused,
    submit_refused,
    validate_refused,
)
from requests_app.services.derive import derive_preview, derive_refused, flush_preview, flush_refused
from requests_app.services.groups import depend_refused, group_refused
from requests_app.services.input_files import MAX_FILES
from requests_app.services.invalidation import files_refused, invalidation_refused
from requests_app.services.moving import move_refused, schedd_named
from requests_app.services.release import Changes, ReleaseMode, release_refused
from requests_app.services.restart import restart_refused
from requests_app.services.stopping import fail_refused, force_refused, stop_refused
from requests_app.work.overrides import ERROR_LIMITS, PINS, THROTTLES, Overrides, read_layouts, read_pools, read_task_sizes
from wms2.actions import Action, Field, Kind, Owned, ResourceType, Role, declare, field_of, lfns, preview_each, sites
from wms2.errors import FieldRefused, NotFoundInService

#: On one's own requests.
OWN = (Role.REQUESTER, Role.OPERATOR)
#: How much work is lost, left out or tried again is decided by operators, of whomever the request is.
_OPERATORS = (Role.OPERATOR,)
#: How what runs ends.
STOP_MODES = (
    (StopMode.NOW.value, "Now: the DAG is removed, jobs that run are lost"),
    (StopMode.DRAIN.value, "Drain: work units that run finish first"),
)
#: How a held request goes on.
RELEASE_MODES = ((ReleaseMode.RESCUE.value, "Rescue the DAG"), (ReleaseMode.NEXT_ROUND.value, "Plan what is left anew"))
_STOP_MODE = Field("mode", Kind.CHOICE, convert=StopMode, default=StopMode.NOW, choices=STOP_MODES)
#: Where to, and how.
MOVE = (
    Field("to", help="the schedd, `name` or `name in pool`; without it the emptiest other one", length=400, convert=schedd_named),
    _STOP_MODE,
)
#: What validating again means.
VALIDATED = (
    "Compare registered files again with DBS, Rucio and, if it is looked at, the storage itself. What was found so far does not"
    " count any more, and what is wrong is a case; nothing is changed outside."
)
CHECKSUMS = (Field("every_checksum", Kind.FLAG, "read every file whole at its site, not a sample of them", blank=False),)
_CONFIRM = Field("confirm", help="the request's name, typed", required=True, length=150)


def _stop(request: Request, actor: str, reason: str, mode: StopMode) -> str:
    """The status before, which the answer has."""
    before = str(request.status)
    services.request_stop(request=request, actor=actor, reason=reason, mode=mode)
    return before


def _release(
    request: Request,
    actor: str,
    reason: str,
    accept_excluded: bool,
    mode: ReleaseMode | None = None,
    site_bans: Sequence[str] = (),
    excluded_files: Sequence[str] = (),
    **overrides: Any,
) -> None:
    changes = Changes(Overrides(**overrides), tuple(site_bans), tuple(excluded_files), accept_excluded)
    services.request_release(request=request, actor=actor, reason=reason, mode=mode, changes=changes)


def _release_repeated(request: Request, actor: str, given: Mapping[str, Any]) -> bool:
    return release_repeated(request, actor=actor, reason=given["reason"])


def _derive(request: Request, actor: str, reason: str, **given: Any) -> Request:
    changed = Overrides(**{name: given.pop(name) for name in Overrides.model_fields if name in given})
    return services.request_derive(request=request, actor=actor, reason=reason, overrides=changed, **given)


def _with_clone(given: dict[str, Any]) -> dict[str, Any]:
    """With the document of ReqMgr2's clone, when one is named."""
    name = given.get("request_name")
    if name is None:
        return given
    try:
        return {**given, "document": services.request_fetch(request_name=name)}
    except NotFoundInService as error:
        raise FieldRefused("request_name", f"ReqMgr2 has no request {name}; leave it out to have the name made") from error


def _site_lists(request: Request) -> Mapping[str, Any]:
    """The lists that it has."""
    has = {
        "site_whitelist": request.request_data.get("SiteWhitelist"),
        "site_blacklist": request.request_data.get("SiteBlacklist"),
    }
    return {name: [value] if isinstance(value, str) else list(value or ()) for name, value in has.items()}


#: What is changed most often with a release.
_USUAL = ("memory_mb",)
#: Headings below which forms fold fields, and pages operations.
_SIZES, _AT_ONCE, _FAILURES, _SITES, _INPUT = (
    "Sizes of jobs and rounds", "How much runs at once", "Retries and how much may fail", "Sites and pools", "Input files",
)  # fmt: skip
#: Override -> what people read beside it, and where it is folded.
_OVERRIDES_SHOWN: Mapping[str, tuple[str, str]] = {
    "error_hold_threshold": ("Share of failed units that holds it", _FAILURES),
    "error_max_rescue_attempts": ("Rescues before it is held", _FAILURES),
    "retry_processing": ("Retries of a processing job", _FAILURES),
    "retry_merge": ("Retries of a merge job", _FAILURES),
    "max_excluded_fraction": ("Share of input files it may miss", _FAILURES),
    "pass_fraction": ("Share of events that is enough", _FAILURES),
    "memory_mb": ("Memory of a job, MB", _SIZES),
    "cores": ("Cores of a job", _SIZES),
    "events_per_job": ("Events per job", _SIZES),
    "lumis_per_job": ("Lumis per job", _SIZES),
    "files_per_job": ("Files per job", _SIZES),
    "layouts": ("Processes and threads of steps", _SIZES),
    "task_sizes": ("Sizes of single tasks", _SIZES),
    "jobs_per_work_unit": ("Jobs per work unit", _SIZES),
    "work_units_per_round": ("Work units per round", _SIZES),
    "max_merge_groups": ("Work units at once", _AT_ONCE),
    "max_processing": ("Processing jobs at once", _AT_ONCE),
    "max_merge": ("Merge jobs at once", _AT_ONCE),
    "max_cleanup": ("Cleanup jobs at once", _AT_ONCE),
    "pools": ("HTCondor pools", _SITES),
    "effect_max_retry_seconds": ("Seconds that registrations are tried", _FAILURES),
}


def _override(name: str) -> Field:
    label, theme = _OVERRIDES_SHOWN[name]
    found = field_of(name, Overrides.model_fields[name], label=label, theme=theme, usual=name in _USUAL)
    converts = {
        "layouts": lambda texts: read_layouts(texts) and list(texts),
        "task_sizes": lambda texts: read_task_sizes(texts) and list(texts),
        "pools": read_pools,
    }
    return replace(found, convert=converts[name]) if name in converts else found


_OVERRIDES = tuple(map(_override, Overrides.model_fields))


def _set(
    name: str, label: str, does: str, service: Callable[..., object], fields: Sequence[Field],
    now: Callable[[Request], Mapping[str, Any]], **more: Any,
) -> Action:  # fmt: skip
    """Set values of one request, in place of those that it has ``now``, on which the decision rests."""
    return Action(
        name, label, does, service, fields=tuple(fields), initial=now, single=True, inverse=name,
        seen=lambda request: (f"{request.status} {now(request)}", request.get_status_display()), **more,
    )  # fmt: skip


def _set_overrides(
    name: str, label: str, does: str, service: Callable[..., object], names: Sequence[str],
    refused: Callable[[Request], str] = priority_refused,
) -> Action:  # fmt: skip
    return _set(
        name, label, does, service, [_override(each) for each in names],
        lambda request: {each: request.overrides.get(each) for each in names}, refused=refused, path=name,
    )  # fmt: skip


#: What a status calls for, the likeliest first.
_FITTING: Mapping[RequestStatus, Sequence[str]] = {
    RequestStatus.NEW: ("submit", "note", "abort"),
    RequestStatus.SUBMITTED: ("hold", "note", "abort"),
    RequestStatus.QUEUED: ("priority", "hold", "sites"),
    RequestStatus.ACTIVE: ("hold", "stop", "priority"),
    RequestStatus.STOPPING: ("force", "note", "abort"),
    RequestStatus.HELD: ("release", "note", "abort"),
    RequestStatus.WAITING_INTEGRITY: ("validate", "hold", "note"),
    RequestStatus.VALIDATING_OUTPUTS: ("compare", "hold", "note"),
    RequestStatus.COMPLETED: ("validate", "compare", "keep"),
    RequestStatus.FAILED: ("restart", "invalidate", "note"),
    RequestStatus.ABORTED: ("invalidate", "restart", "note"),
    RequestStatus.CLEANING: ("clean", "note"),
}
_THEMES: Mapping[str, Sequence[str]] = {
    "How it goes on": ("submit", "release", "stop", "move", "hold", "flush"),
    "Priority, sites and limits": ("sites", "priority", "pin", "retry-time", "pools", "throttle", "error-limits"),
    "Other requests": ("group", "depend", "derive", "restart"),
    "Outputs": ("keep", "compare", "validate", "invalidate", "invalidate-files"),
    "Alerts": ("watch", "unwatch"),
    "End it": ("complete", "fail", "force", "abort", "clean"),
}

declare(
    ResourceType(
        Request, "request", "request", lambda name: Request.objects.filter(request_name=name),
        lambda request: (request.status, request.get_status_display()), "requests/<name:request_name>",
        owner=lambda request: Owned(frozenset({request.requestor}), frozenset({request.group})),
        fitting=lambda request: _FITTING.get(RequestStatus(request.status), ("hold", "priority", "note")), themes=_THEMES,
    ),
    Action(
        "submit", "Submit", "Let a new request go on its way: its inputs are read, then it is queued.", services.request_submit,
        refused=submit_refused,
    ),
    Action(
        "release", "Release", "Let a held request go on, as it is or with changes for it alone. Completed work stays.", _release,
        preview.release,
        (
            Field(
                "mode", Kind.CHOICE,
                "rescue: the same DAG, what failed again; next_round: what is done counts, the rest is planned anew."
                " Without it: rescue where one is possible",
                convert=ReleaseMode, blank_label="Rescue where one is possible, else plan anew",
                choices=RELEASE_MODES, label="How it goes on", usual=True,
            ),
            sites(
                "site_bans", "sites it avoids from now on, separated by spaces", roles=_OPERATORS, label="Sites to avoid",
                theme=_SITES,
            ),
            lfns(
                "excluded_files", "input files that are read no more, one a line", MAX_FILES, rows=2, roles=_OPERATORS,
                label="Files to leave out", theme=_INPUT,
            ),
            Field(
                "accept_excluded", Kind.FLAG,
                "it may complete without the input files that could not be read or not be split", roles=_OPERATORS,
                label="Accept what is left out", theme=_INPUT,
            ),
            *(replace(each, roles=_OPERATORS) for each in _OVERRIDES),
        ),
        release_refused, _release_repeated, path="release", roles=OWN, inverse="hold",
    ),
    Action(
        "stop", "Stop", "Stop the running DAG cleanly; the request queues again and goes on from the rescue file. Between DAGs"
        " nothing has to be stopped, and nothing is.",
        _stop, preview.stop, (_STOP_MODE,), stop_refused, path="stop", stops=True,
    ),
    Action(
        "move", "Move",
        "Have the work go on at another schedd. A running DAG is stopped cleanly first; its rescue goes on where its directory is"
        " seen, elsewhere what is not done is planned anew.",
        services.request_move, preview.move, MOVE, move_refused, path="move", inverse="move",
    ),
    Action(
        "hold", "Hold", "Put a request aside; a running DAG is stopped first. Completed work stays.", services.request_hold,
        preview.hold, refused=hold_refused, path="hold", stops=True, roles=OWN, inverse="release",
    ),
    Action(
        "complete", "Complete early",
        "Plan nothing more: the request completes with what is done, once that is registered. A running DAG is stopped first.",
        services.request_complete, preview.complete, refused=complete_refused, path="complete", dangerous=True,
    ),
    Action(
        "keep", "Keep outputs",
        "Keep what a request made although it was rejected in ReqMgr2 after it completed here: its files, datasets and rules stay"
        " as they are.",
        services.request_keep, refused=keep_refused, path="keep",
    ),
    Action(
        "sites", "Change sites", "Replace a request's site lists. Jobs that run go on.", services.request_set_sites,
        preview.sites,
        (
            sites("site_whitelist", "where it may run, separated by spaces", required=True, label="Sites it may use"),
            sites("site_blacklist", "where it may not run", label="Sites it may not use"),
        ),
        priority_refused, former=_site_lists, path="sites", single=True, inverse="sites",
    ),
    Action(
        "priority", "Change priority", "Give a request another priority.", services.request_set_priority,
        preview.priority,
        (
            Field(
                "priority", Kind.WHOLE, f"higher starts earlier; 0 to {MAX_PRIORITY}", required=True, least=0, most=MAX_PRIORITY
            ),
        ),
        priority_refused, former=lambda request: {"priority": request.priority}, inverse="priority",
    ),
    _set_overrides(
        "pin", "Pin sizes",
        "Fix sizes of a request's further rounds, in place of those fixed before; what runs stays as it is. What is left empty is"
        " sized by what was measured, or by the request's hints.",
        services.request_pin, PINS,
    ),
    _set_overrides(
        "retry-time", "Retry time",
        "Say for how long a request's registrations are tried again after their first failure, from the next failure on; what"
        " has been given up needs its retry.",
        services.request_set_retries, ("effect_max_retry_seconds",), lambda request: "",
    ),
    _set_overrides(
        "pools", "Change pools",
        "Say which HTCondor pools a request's DAGs may go to from the next submission on; none: to all. A rescue leaves a pool"
        " that is not named: where its directory is not seen, what is not done is planned anew.",
        services.request_set_pools, ("pools",),
    ),
    _set_overrides(
        "throttle", "Limit what runs at once",
        "Limit how many work units and jobs of a request run at the same time, in place of what was said before. A DAG that runs"
        " begins fewer work units from the next cycle on; all else holds from the next submission on. What is left empty follows"
        " from the installation's limits.",
        services.request_throttle, THROTTLES,
    ),
    _set_overrides(
        "error-limits", "Change error limits",
        "Say how much of a request may fail and how often it is tried again, in place of what was said before, while it runs too;"
        " retries, which are written into DAGs, hold from its next round on. A held request stays held until it is released. What"
        " is left empty is as configured.",
        services.request_set_error_limits, ERROR_LIMITS,
    ),
    _set(
        "note", "Note",
        "Put an operator's remark on a request, in place of the one before. It is shown with the request; WMS2 does not act on"
        " it.",
        services.request_note, [Field("notes", help="the remark; empty takes it away", length=2000, blank="", rows=4)],
        lambda request: {"notes": request.notes}, path="note", roles=OWN,
    ),
    Action(
        "group", "Change its group",
        "Have requests complete together: each waits with its outputs validated until all others of the group are there.",
        services.request_group,
        preview_each(lambda request: [f"It is in {request.in_group or 'no group'} now. All others of its group wait for it."]),
        (Field("in_group", Kind.NAME, "name of the group, made if there is none; empty: it completes by itself", length=150),),
        group_refused, former=lambda request: {"in_group": str(request.in_group or "")}, path="group", inverse="group",
    ),
    _set(
        "depend", "Change what it depends on",
        "Replace the requests that one that has not begun waits for; it begins when they have completed, and reads their output.",
        services.request_depend,
        [Field("depends_on", Kind.TEXTS, "names of requests; none: it begins by itself", length=150, most_items=100)],
        lambda request: {"depends_on": names_about(request).depends_on}, refused=depend_refused, path="depend",
    ),
    Action(
        "restart", "Restart", "Kill and clone: the request fails, and its next version begins from nothing.",
        services.request_restart, preview.restart,
        (
            Field(
                "request_name", Kind.NAME, "of ReqMgr2's clone, whose document is taken; without it <name>_v<N>", length=150
            ),
            Field(
                "cleanup_policy", Kind.CHOICE, "of the old outputs, once the new version is complete", convert=CleanupPolicy,
                choices=tuple(CleanupPolicy.choices), blank_label="As the request's own policy for the old outputs",
            ),
        ),
        restart_refused, prepare=_with_clone, outside=True, path="restart", dangerous=True,
    ),
    Action(
        "flush", "Flush", "No more input comes: what has been read is planned to the end, also what fills no work unit.",
        services.request_flush, preview_each(flush_preview), refused=flush_refused, path="flush",
    ),
    Action(
        "derive", "Derive",
        "Make a request of the work that this one has not used, with changes, into the same datasets. This one ends what it has.",
        _derive, preview_each(derive_preview),
        (
            Field("request_name", Kind.NAME, "of the new request; without it <name>_d<N>", length=150),
            Field("failed", Kind.FLAG, "also what failed here or was given back; the open round is closed", usual=True),
            Field("priority", Kind.WHOLE, "of the new request", least=0, most=MAX_PRIORITY),
            sites("site_whitelist", "where the new one may run, separated by spaces", label="Sites it may use", theme=_SITES),
            sites("site_blacklist", "where it may not run", label="Sites it may not use", theme=_SITES),
            *_OVERRIDES,
        ),
        derive_refused, path="derive", single=True, dangerous=True,
    ),
    Action(
        "fail", "Fail",
        "End a held or running request as failed. Its outputs are listed for invalidation, and stay until an operator acts.",
        services.request_fail, preview.fail, refused=fail_refused, path="fail", dangerous=True, stops=True,
    ),
    Action(
        "force", "Force the end",
        "The last resort for a stop whose schedd is gone for good: it is settled without the proof that the DAG has left the"
        " queue. Until its jobs have ended they may run beside whatever comes next; what they still write does not count, and"
        " what of the DAG shows up later is removed. What was to go on is held.",
        services.request_force, None, (_CONFIRM, Field("insist", Kind.FLAG, "also while the schedd answers", blank=False)),
        force_refused, path="force", single=True, dangerous=True, stops=True,
    ),
    Action(
        "invalidate", "Invalidate outputs",
        "Take back the outputs of a failed, aborted or replaced request: files and datasets INVALID in DBS, then rules deleted.",
        services.request_invalidate, preview_each(preview.invalidate), refused=invalidation_refused, path="invalidate",
        dangerous=True,
    ),
    Action(
        "invalidate-files", "Invalidate files or blocks",
        "Take single files or whole blocks of a request at its end back: files INVALID in DBS, then rules deleted.",
        services.request_invalidate_files, preview_each(preview.invalidate_files),
        (
            lfns("files", "names of files, one a line", MAX_FILES, rows=4),
            lfns("blocks", "names of blocks, one a line", MAX_FILES, rows=2),
            Field("accept_children", Kind.FLAG, "what was made of them stays valid", blank=False),
        ),
        files_refused, path="invalidate-files", single=True, dangerous=True,
    ),
    Action(
        "abort", "Abort",
        "Abort the request for good, at any moment. Accepted at once; a running DAG is removed first. Repeatable.",
        services.request_abort, preview.abort, refused=abort_refused, path="", method="delete", dangerous=True, stops=True,
        roles=OWN,
    ),
    Action(
        "clean", "Clean",
        "Remove everything that the request has made, in any status: its DAG, its registrations, rules, files and directories."
        " Repeatable.",
        services.request_clean, preview.clean,
        (
            _CONFIRM,
            Field("accept_dependents", Kind.FLAG, "other requests rest on it, and that is known", blank=False),
            Field(
                "accept_rest", Kind.FLAG,
                "of one that is being cleaned: it counts as cleaned with what is left, which is still tried", blank=False,
            ),
        ),
        clean_refused, path="clean", single=True, dangerous=True,
    ),
    Action(
        "compare", "Compare now",
        f"Compare all output datasets of a request with what DBS and Rucio hold of them now. {COMPARED}",
        services.request_compare, refused=compare_refused, path="compare",
    ),
    Action(
        "validate", "Validate again", f"{VALIDATED} All its blocks.", services.request_validate, None, CHECKSUMS,
        validate_refused, path="validate",
    ),
    Action(
        "restore-files", "Let input files in again",
        "Let input files in again that could not be read, or that an operator left out; a further round reads them."
        " A held request still needs its release.",
        services.input_files_restore,
        fields=(lfns("files", "their names, one a line", MAX_FILES, required=True),),
        prepare=lambda given: {"lfns": given.pop("files"), **given}, path="restore-files", admin=False,
    ),
)  # fmt: skip
