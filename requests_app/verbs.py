"""Verbs on requests and input files, and those on a DAG or an integrity case that decide on its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dags_app.verbs  # noqa: F401  declares what is extended here
from dags_app.models import DAG
from dags_app.services.stop import StopMode, steer_refused
from dags_app.verbs import strays_seen
from outputs_app.models import IntegrityCase, ProcessingBlock
from outputs_app.selectors import blocks_shown
from outputs_app.verbs import COMPARED
from requests_app import control_verbs, services  # noqa: F401  the others are declared
from requests_app.models import (
    CleanupPolicy,
    Harvest,
    HarvestState,
    InputFile,
    Request,
    RequestGroup,
    RequestStatus,
)
from requests_app.selectors.drains import drain_progress
from requests_app.selectors.parts import harvests_shown
from requests_app.selectors.requests import names_about, release_repeated
from requests_app.services import preview
from requests_app.services.adopting import adopt_refused, adopt_words, schedd_adopt_strays
from requests_app.services.cases import case_remove, removal_told, remove_refused
from requests_app.services.cleaning import clean_refused
from requests_app.services.dags import dag_move, dag_remove, dag_rescue, rescue_refused
from requests_app.services.derive import derive_preview, derive_refused, flush_preview, flush_refused
from requests_app.services.groups import depend_refused, group_refused
from requests_app.services.input_files import MAX_FILES, restore_refused
from requests_app.services.invalidation import files_refused, invalidation_refused
from requests_app.services.moving import move_refused, schedd_named
from requests_app.services.release import Changes, ReleaseMode, release_plan, release_refused
from requests_app.services.restart import restart_refused
from requests_app.services.stopping import fail_refused, force_refused, stop_refused
from requests_app.services.verbs import (
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
from requests_app.work.groups import group_standing
from requests_app.work.harvesting import harvest_decide, harvest_refused
from requests_app.work.overrides import ERROR_LIMITS, PINS, THROTTLES, Overrides, read_layouts, read_pools, read_task_sizes
from sites_app.models import Schedd
from wms2.errors import FieldRefused, NotFoundInService
from wms2.verbs import Field, Kind, Noun, Told, Verb, declare, extend, field_of, told_of_each
from wms2.words import counted


def _stop(request: Request, actor: str, reason: str, mode: StopMode) -> str:
    """The status before, which the answer tells."""
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


def _derive(request: Request, actor: str, reason: str, **given: Any) -> Request:
    changed = Overrides(**{name: given.pop(name) for name in Overrides.model_fields if name in given})
    return services.request_derive(request=request, actor=actor, reason=reason, overrides=changed, **given)


def _override(name: str) -> Field:
    found = field_of(name, Overrides.model_fields[name])
    converts = {
        "layouts": lambda texts: read_layouts(texts) and list(texts),
        "task_sizes": lambda texts: read_task_sizes(texts) and list(texts),
        "pools": read_pools,
    }
    return replace(found, convert=converts[name]) if name in converts else found


def _release_repeated(request: Request, actor: str, given: Mapping[str, Any]) -> bool:
    return release_repeated(request, actor=actor, reason=given["reason"])


def _with_clone(given: dict[str, Any]) -> dict[str, Any]:
    """With the document of ReqMgr2's clone, when one is named."""
    name = given.get("request_name")
    if name is None:
        return given
    try:
        return {**given, "document": services.request_fetch(request_name=name)}
    except NotFoundInService as error:
        raise FieldRefused("request_name", f"ReqMgr2 has no request {name}; leave it out to have the name made") from error


#: How what runs ends.
STOP_MODES = (
    (StopMode.NOW.value, "Now: the DAG is removed, jobs that run are lost"),
    (StopMode.DRAIN.value, "Drain: work units that run finish first"),
)
#: How a held request goes on.
RELEASE_MODES = ((ReleaseMode.RESCUE.value, "Rescue the DAG"), (ReleaseMode.NEXT_ROUND.value, "Plan what is left anew"))
#: Where to, and how.
_MOVE = (
    Field("to", help="the schedd, `name` or `name in pool`; without it the emptiest other one", length=400, convert=schedd_named),
    Field("mode", Kind.CHOICE, convert=StopMode, default=StopMode.NOW, choices=STOP_MODES),
)
_VALIDATED = "Compare registered files again with DBS, Rucio and, if it is looked at, the storage itself."
VALIDATED_AGAIN = "What was found so far does not count any more. What is wrong is a case. Nothing is changed outside."
_CHECKSUMS = (Field("every_checksum", Kind.FLAG, "read every file whole at its site, not a sample of them", blank=False),)
declare(
    Noun(
        ProcessingBlock, "block", "block", lambda name: blocks_shown().filter(dbs_block_name=name),
        lambda block: (block.status, block.get_status_display()), "blocks/<uuid:pk>",
    ),
    Verb(
        "validate-block", "Validate again", f"{_VALIDATED} One block.", services.block_validate,
        told_of_each(lambda block: [VALIDATED_AGAIN]), _CHECKSUMS,
        refused=lambda block: validate_refused(block.workflow.request), path="validate",
    ),
)  # fmt: skip

declare(
    Noun(
        Request, "request", "request", lambda name: Request.objects.filter(request_name=name),
        lambda request: (request.status, request.get_status_display()), "requests/<name:request_name>",
    ),
    Verb(
        "submit", "Submit", "Let a new request go on its way.", services.request_submit,
        told_of_each(lambda request: ["It is submitted: its inputs are read, then it is queued."]), refused=submit_refused,
    ),
    Verb(
        "release", "Release", "Let a held request go on, as it is or with changes for it alone. Completed work stays.", _release,
        preview.release,
        (
            Field(
                "mode", Kind.CHOICE,
                "rescue: the same DAG, what failed again; next_round: what is done counts, the rest is planned anew."
                " Without it: rescue where one is possible",
                convert=ReleaseMode, blank_label="As described above",
                choices=RELEASE_MODES,
            ),
            Field("site_bans", Kind.TEXTS, "sites it avoids from now on, separated by spaces", length=100, most_items=200),
            Field(
                "excluded_files", Kind.TEXTS, "input files nobody reads any more, one a line", length=500, most_items=MAX_FILES,
                rows=2,
            ),
            Field(
                "accept_excluded", Kind.FLAG,
                "it may complete without the input files that could not be read or not be split",
            ),
            *map(_override, Overrides.model_fields),
        ),
        release_refused, _release_repeated, path="release",
    ),
    Verb(
        "stop", "Stop", "Stop the running DAG cleanly; the request queues again and goes on from the rescue file. Between DAGs"
        " nothing has to be stopped, and nothing is.",
        _stop, preview.stop,
        _MOVE[1:], stop_refused, path="stop", stops=True,
    ),
    Verb(
        "move", "Move",
        "Have the work go on at another schedd. A running DAG is stopped cleanly first; its rescue goes on where its directory is"
        " seen, elsewhere what is not done is planned anew.",
        services.request_move, preview.move, _MOVE, move_refused, path="move",
    ),
    Verb(
        "hold", "Hold", "Put a request aside; a running DAG is stopped first. Completed work stays.", services.request_hold,
        preview.hold, refused=hold_refused, path="hold", stops=True,
    ),
    Verb(
        "complete", "Complete early",
        "Plan nothing more: the request completes with what is done, once that is registered. A running DAG is stopped first.",
        services.request_complete, preview.complete, refused=complete_refused, path="complete", dangerous=True,
    ),
    Verb(
        "keep", "Keep outputs", "Keep what a request made although it was rejected in ReqMgr2 after it completed here.",
        services.request_keep,
        told_of_each(lambda request: ["Its files, datasets and rules stay as they are. To remove them, clean it instead."]),
        refused=keep_refused, path="keep",
    ),
    Verb(
        "sites", "Change sites", "Replace a request's site lists. Jobs that run go on.", services.request_set_sites,
        preview.sites,
        (
            Field("site_whitelist", Kind.TEXTS, "where it may run, separated by spaces", True, length=100, most_items=500),
            Field("site_blacklist", Kind.TEXTS, "where it may not run", length=100, most_items=500),
        ),
        priority_refused, path="sites", single=True,
    ),
    Verb(
        "priority", "Change priority", "Give a request another priority.", services.request_set_priority,
        preview.priority,
        (
            Field(
                "priority", Kind.WHOLE, f"higher starts earlier; 0 to {MAX_PRIORITY}", required=True, least=0, most=MAX_PRIORITY
            ),
        ),
        priority_refused,
    ),
    Verb(
        "pin", "Pin sizes",
        "Fix sizes of a request's further rounds, in place of those fixed before. What is left empty is sized by what was"
        " measured, or by the request's hints.",
        services.request_pin,
        told_of_each(lambda request: ["From its next round on jobs and work units have these sizes; what runs stays as it is."]),
        tuple(map(_override, PINS)),
        priority_refused, initial=lambda request: {name: request.overrides.get(name) for name in PINS}, path="pin", single=True,
        seen=lambda request: (f"{request.status} {request.overrides}", request.get_status_display()),
    ),
    Verb(
        "retry-time", "Retry time", "Say for how long a request's registrations are tried again after their first failure.",
        services.request_set_retries,
        told_of_each(lambda request: ["It holds from the next failure on; what has been given up needs its retry."]),
        (_override("effect_max_retry_seconds"),),
        initial=lambda request: {"effect_max_retry_seconds": request.overrides.get("effect_max_retry_seconds")},
        path="retry-time", single=True, seen=lambda request: (f"{request.overrides}", request.get_status_display()),
    ),
    Verb(
        "pools", "Change pools", "Say which HTCondor pools a request's DAGs may go to; none: to all.", services.request_set_pools,
        told_of_each(lambda request: [
            "It holds from the next submission on. What runs goes on where it is.",
            "A rescue leaves a pool that is not named: where its directory is not seen, what is not done is planned anew.",
        ]),
        (_override("pools"),),
        priority_refused, initial=lambda request: {"pools": request.overrides.get("pools")}, path="pools", single=True,
        seen=lambda request: (f"{request.status} {request.overrides}", request.get_status_display()),
    ),
    Verb(
        "throttle", "Limit what runs at once",
        "Limit how many work units and jobs of a request run at the same time, in place of what was said before. What is left"
        " empty follows from the installation's limits.",
        services.request_throttle,
        told_of_each(lambda request: [
            "A DAG that runs begins fewer work units from the next cycle on; all else holds from the next submission on.",
        ]),
        tuple(map(_override, THROTTLES)),
        initial=lambda request: {name: request.overrides.get(name) for name in THROTTLES}, path="throttle", single=True,
        refused=priority_refused, seen=lambda request: (f"{request.status} {request.overrides}", request.get_status_display()),
    ),
    Verb(
        "error-limits", "Change error limits",
        "Say how much of a request may fail and how often it is tried again, in place of what was said before, while it runs too."
        " What is left empty is as configured.",
        services.request_set_error_limits,
        told_of_each(lambda request: [
            "Threshold, rescues and shares hold from now on; retries, which are written into DAGs, from its next round on.",
            *(["It stays held until it is released."] if request.status == RequestStatus.HELD else []),
        ]),
        tuple(map(_override, ERROR_LIMITS)),
        initial=lambda request: {name: request.overrides.get(name) for name in ERROR_LIMITS}, path="error-limits", single=True,
        refused=priority_refused, seen=lambda request: (f"{request.status} {request.overrides}", request.get_status_display()),
    ),
    Verb(
        "note", "Note", "Put an operator's remark on a request, in place of the one before.", services.request_note,
        told_of_each(lambda request: ["The remark below is shown with the request; WMS2 itself does not act on it."]),
        (Field("notes", help="the remark; empty takes it away", length=2000, blank="", rows=4),),
        initial=lambda request: {"notes": request.notes}, path="note", single=True,
        seen=lambda request: (f"{request.status} {request.notes}", request.get_status_display()),
    ),
    Verb(
        "group", "Change its group",
        "Have requests complete together: each waits with its outputs validated until all others of the group are there.",
        services.request_group,
        told_of_each(lambda request: [f"It is in {request.in_group or 'no group'} now. All others of its group wait for it."]),
        (Field("in_group", Kind.NAME, "name of the group, made if there is none; empty: it completes by itself", length=150),),
        group_refused, path="group",
    ),
    Verb(
        "depend", "Change what it depends on",
        "Replace the requests that one that has not begun waits for; it begins when they have completed, and reads their output.",
        services.request_depend,
        told_of_each(lambda request: ["It begins when all of these have completed; one of them writes its input."]),
        (Field("depends_on", Kind.TEXTS, "names of requests; none: it begins by itself", length=150, most_items=100),),
        depend_refused, initial=lambda request: {"depends_on": names_about(request).depends_on}, path="depend", single=True,
        seen=lambda request: (f"{request.status} {names_about(request).depends_on}", request.get_status_display()),
    ),
    Verb(
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
    Verb(
        "flush", "Flush", "No more input comes: what has been read is planned to the end, also what fills no work unit.",
        services.request_flush, told_of_each(flush_preview), refused=flush_refused, path="flush",
    ),
    Verb(
        "derive", "Derive",
        "Make a request of the work that this one has not used, with changes, into the same datasets. This one ends what it has.",
        _derive, told_of_each(derive_preview),
        (
            Field("request_name", Kind.NAME, "of the new request; without it <name>_d<N>", length=150),
            Field("failed", Kind.FLAG, "also what failed here or was given back; the open round is closed"),
            Field("priority", Kind.WHOLE, "of the new request", least=0, most=MAX_PRIORITY),
            Field("site_whitelist", Kind.TEXTS, "where the new one may run, separated by spaces", length=100, most_items=500),
            Field("site_blacklist", Kind.TEXTS, "where it may not run", length=100, most_items=500),
            *map(_override, Overrides.model_fields),
        ),
        derive_refused, path="derive", single=True, dangerous=True,
    ),
    Verb(
        "fail", "Fail",
        "End a held or running request as failed. Its outputs are listed for invalidation, and stay until an operator acts.",
        services.request_fail, preview.fail, refused=fail_refused, path="fail", dangerous=True, stops=True,
    ),
    Verb(
        "force", "Force the end",
        "The last resort for a stop whose schedd is gone for good: it is settled without the proof that the DAG has left the"
        " queue. What of it shows up later is removed; what was to go on is held.",
        services.request_force,
        told_of_each(
            lambda request: [
                "Nothing proves that its jobs have ended: until they do, they may run beside whatever comes next.",
                "What they still write does not count; should the schedd come back, they are removed.",
            ]
        ),
        (
            Field("confirm", help="the request's name, typed", required=True, length=150),
            Field("insist", Kind.FLAG, "also while the schedd answers", blank=False),
        ),
        force_refused, path="force", single=True, dangerous=True, stops=True,
    ),
    Verb(
        "invalidate", "Invalidate outputs",
        "Take back the outputs of a failed, aborted or replaced request: files and datasets INVALID in DBS, then rules deleted.",
        services.request_invalidate, told_of_each(preview.invalidate), refused=invalidation_refused, path="invalidate",
        dangerous=True,
    ),
    Verb(
        "invalidate-files", "Invalidate files or blocks",
        "Take single files or whole blocks of a request at its end back: files INVALID in DBS, then rules deleted.",
        services.request_invalidate_files, told_of_each(preview.invalidate_files),
        (
            Field("files", Kind.TEXTS, "names of files, one a line", length=700, most_items=MAX_FILES, rows=4),
            Field("blocks", Kind.TEXTS, "names of blocks, one a line", length=500, most_items=MAX_FILES, rows=2),
            Field("accept_children", Kind.FLAG, "what was made of them stays valid", blank=False),
        ),
        files_refused, path="invalidate-files", single=True, dangerous=True,
    ),
    Verb(
        "abort", "Abort",
        "Abort the request for good, at any moment. Accepted at once; a running DAG is removed first. Repeatable.",
        services.request_abort, preview.abort, refused=abort_refused, path="", method="delete", dangerous=True, stops=True,
    ),
    Verb(
        "clean", "Clean",
        "Remove everything that the request has made, in any status: its DAG, its registrations, rules, files and directories."
        " Repeatable.",
        services.request_clean, preview.clean,
        (
            Field("confirm", help="the request's name, typed", required=True, length=150),
            Field("accept_dependents", Kind.FLAG, "other requests rest on it, and that is known", blank=False),
            Field(
                "accept_rest", Kind.FLAG,
                "of one that is being cleaned: it counts as cleaned with what is left, which is still tried", blank=False,
            ),
        ),
        clean_refused, path="clean", single=True, dangerous=True,
    ),
    Verb(
        "compare", "Compare now",
        "Compare all output datasets of a request with what DBS and Rucio hold of them now. Nothing is changed outside.",
        services.request_compare, told_of_each(lambda request: [COMPARED]), refused=compare_refused, path="compare",
    ),
    Verb(
        "validate", "Validate again", f"{_VALIDATED} All its blocks.", services.request_validate,
        told_of_each(lambda request: [VALIDATED_AGAIN]), _CHECKSUMS, refused=validate_refused, path="validate",
    ),
    Verb(
        "restore-files", "Let input files in again",
        "Let input files in again that could not be read, or that an operator left out; a further round reads them."
        " A held request still needs its release.",
        services.input_files_restore,
        fields=(Field("files", Kind.TEXTS, "their names, one a line", required=True, length=700, most_items=MAX_FILES),),
        prepare=lambda given: {"lfns": given.pop("files"), **given}, path="restore-files", admin=False,
    ),
)  # fmt: skip


declare(
    Noun(
        RequestGroup, "group", "group", lambda name: RequestGroup.objects.filter(name=name),
        lambda group: (group_standing(group).status,) * 2, "groups/<name:name>",
    ),
    Verb(
        "dissolve", "Dissolve", "Each of its requests completes by itself; those that waited for others go on.",
        services.group_dissolve, told_of_each(lambda group: [f"{child}." for child in group_standing(group).children]),
        path="dissolve",
    ),
)  # fmt: skip


def _remove(dags: Sequence[DAG]) -> Told:
    told = preview.hold([dag.workflow.request for dag in dags])
    return {dag.pk: [f"{dag.workflow.request_id} is held:", *told[dag.workflow.request.pk]] for dag in dags}


def _rescue(dag: DAG) -> list[str]:
    if rescue_refused(dag):
        return []
    plan = release_plan(dag.workflow.request, ReleaseMode.RESCUE)
    return [
        f"{dag.workflow.request_id} is released: it is queued and goes on when its turn has come.",
        f"The same DAG goes on from its rescue file: {counted(plan.units_again, 'work unit')} run again,"
        f" {plan.units_done} are done and stay registered.",
    ]


def _move_dag(dags: Sequence[DAG]) -> Told:
    told = preview.move([dag.workflow.request for dag in dags])
    return {dag.pk: [f"{dag.workflow.request_id}:", *told[dag.workflow.request.pk]] for dag in dags}


extend(
    DAG,
    Verb(
        "remove", "Remove, and hold the request", "Remove the DAG with everything under it; its request is held.", dag_remove,
        _remove, refused=steer_refused, path="remove", stops=True,
    ),
    Verb(
        "rescue", "Rescue", "Submit the rescue of a held request's last DAG.", dag_rescue, told_of_each(_rescue),
        refused=rescue_refused, path="rescue",
    ),
    Verb(
        "move", "Move", "Have the DAG's request go on at another schedd.", dag_move, _move_dag, _MOVE,
        refused=lambda dag: steer_refused(dag) or move_refused(dag.workflow.request), path="move",
    ),
)  # fmt: skip

extend(
    IntegrityCase,
    Verb(
        "remove", "Remove",
        "Take a lost file back with every file that holds pieces of the same work: INVALID in DBS, without rules. Then that work"
        " is planned again, also of a completed request; of one that failed or was aborted it is not.",
        case_remove, removal_told, refused=remove_refused, path="remove", dangerous=True,
    ),
)  # fmt: skip


def _drains(schedd: Schedd) -> list[str]:
    return drain_progress(schedd).words()


extend(
    Schedd,
    Verb(
        "adopt-strays", "Adopt strays",
        "After a restored database: have the requests whose DAGs run there without a row planned now, which takes these up. What"
        " cannot be adopted stays, with the reason.",
        schedd_adopt_strays, told_of_each(adopt_words), refused=adopt_refused, seen=strays_seen, path="adopt-strays",
    ),
    told=_drains, of=("enable", "disable"), standing=_drains,
)  # fmt: skip


def _restore(file: InputFile, actor: str, reason: str) -> None:
    services.input_files_restore(request=file.workflow.request, lfns=[file.lfn], actor=actor, reason=reason)


declare(
    Noun(
        InputFile, "input-file", "file", lambda key: InputFile.objects.filter(pk=key),
        lambda file: (file.excluded_kind, file.lfn),
    ),
    Verb(
        "restore", "Let in again", "Let a single input file in again.", _restore,
        told_of_each(lambda f: ["It is read after all, in a further round.", f"Left out because: {f.excluded_reason}"]),
        refused=restore_refused,
    ),
)  # fmt: skip


declare(
    Noun(
        Harvest, "harvest", "harvest", lambda key: harvests_shown().filter(pk=key),
        lambda harvest: (harvest.state, harvest.get_state_display()), "harvests/<int:pk>",
    ),
    Verb(
        "retry", "Harvest again", "Harvest and upload again now, also what is done: the servers keep both as versions.",
        partial(harvest_decide, state=HarvestState.WAITING),
        told_of_each(lambda harvest: [f"{harvest}: a job harvests and uploads it within minutes."]),
        refused=harvest_refused, path="retry",
    ),
    Verb(
        "discard", "Discard", "Give a DQM harvesting up: nothing more is uploaded of it.",
        partial(harvest_decide, state=HarvestState.DISCARDED),
        told_of_each(lambda harvest: [f"{harvest}: nothing more is uploaded of it."]), refused=harvest_refused, path="discard",
    ),
)  # fmt: skip
