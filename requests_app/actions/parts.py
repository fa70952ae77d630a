"""Operations on what belongs to a request: blocks, groups, input files; DAGs and cases, as far as they decide on it."""

from __future__ import annotations

from collections.abc import Sequence

import dags_app.actions  # noqa: F401  declares what is extended here
from dags_app.actions import strays_seen
from dags_app.models import DAG
from dags_app.services.stop import steer_refused
from outputs_app.models import IntegrityCase, ProcessingBlock
from outputs_app.selectors import blocks_shown
from requests_app import services
from requests_app.actions.requests import CHECKSUMS, MOVE, VALIDATED
from requests_app.models import InputFile, RequestGroup
from requests_app.selectors.drains import drain_progress
from requests_app.services import preview
from requests_app.services.adopting import adopt_preview, adopt_refused, schedd_adopt_strays
from requests_app.services.cases import case_remove, removal_preview, remove_refused
from requests_app.services.dags import dag_move, dag_remove, dag_rescue, rescue_refused
from requests_app.services.decisions import validate_refused
from requests_app.services.input_files import restore_refused
from requests_app.services.moving import move_refused
from requests_app.services.release import ReleaseMode, release_plan
from requests_app.work.groups import group_status
from sites_app.models import Schedd
from wms2.actions import Action, Messages, ResourceType, declare, extend, preview_each
from wms2.web.formatting import counted

declare(
    ResourceType(
        ProcessingBlock, "block", "block", lambda name: blocks_shown().filter(dbs_block_name=name),
        lambda block: (block.status, block.get_status_display()), "blocks/<uuid:pk>",
        fitting=lambda block: ("validate-block",),
    ),
    Action(
        "validate-block", "Validate again", f"{VALIDATED} One block.", services.block_validate, None, CHECKSUMS,
        lambda block: validate_refused(block.workflow.request), path="validate",
    ),
)  # fmt: skip

declare(
    ResourceType(
        RequestGroup, "group", "group", lambda name: RequestGroup.objects.filter(name=name),
        lambda group: (group_status(group).status,) * 2, "groups/<name:name>",
        fitting=lambda group: ("dissolve",),
    ),
    Action(
        "dissolve", "Dissolve", "Each of its requests completes by itself; those that waited for others go on.",
        services.group_dissolve, preview_each(lambda group: [f"{child}." for child in group_status(group).children]),
        path="dissolve",
    ),
)  # fmt: skip


def _remove(dags: Sequence[DAG]) -> Messages:
    reported = preview.hold([dag.workflow.request for dag in dags])
    return {dag.pk: [f"{dag.workflow.request_id} is held:", *reported[dag.workflow.request.pk]] for dag in dags}


def _rescue(dag: DAG) -> list[str]:
    if rescue_refused(dag):
        return []
    plan = release_plan(dag.workflow.request, ReleaseMode.RESCUE)
    return [
        f"{dag.workflow.request_id} is released: it is queued and goes on when its turn has come.",
        f"The same DAG goes on from its rescue file: {counted(plan.units_again, 'work unit')} run again,"
        f" {plan.units_done} are done and stay registered.",
    ]


def _move(dags: Sequence[DAG]) -> Messages:
    moved = preview.move([dag.workflow.request for dag in dags])
    return {dag.pk: [f"{dag.workflow.request_id}:", *moved[dag.workflow.request.pk]] for dag in dags}


extend(
    DAG,
    Action(
        "remove", "Remove, and hold the request", "Remove the DAG with everything under it; its request is held.", dag_remove,
        _remove, refused=steer_refused, path="remove", stops=True, inverse="rescue",
    ),
    Action(
        "rescue", "Rescue", "Submit the rescue of a held request's last DAG.", dag_rescue, preview_each(_rescue),
        refused=rescue_refused, path="rescue", inverse="remove",
    ),
    Action(
        "move", "Move", "Have the DAG's request go on at another schedd.", dag_move, _move, MOVE,
        refused=lambda dag: steer_refused(dag) or move_refused(dag.workflow.request), path="move", inverse="move",
    ),
)  # fmt: skip

extend(
    IntegrityCase,
    Action(
        "remove", "Remove",
        "Take a lost file back with every file that holds pieces of the same work: INVALID in DBS, without rules. Then that work"
        " is planned again, also of a completed request; of one that failed or was aborted it is not.",
        case_remove, removal_preview, refused=remove_refused, path="remove", dangerous=True,
    ),
)  # fmt: skip


def _drains(schedd: Schedd) -> list[str]:
    return drain_progress(schedd).words()


extend(
    Schedd,
    Action(
        "adopt-strays", "Adopt strays",
        "After a restored database: have the requests whose DAGs run there without a row planned now, which takes these up. What"
        " cannot be adopted stays, with the reason.",
        schedd_adopt_strays, preview_each(adopt_preview), refused=adopt_refused, seen=strays_seen, path="adopt-strays",
    ),
    reported=_drains, of=("enable", "disable"), status_detail=_drains,
)  # fmt: skip


def _restore(file: InputFile, actor: str, reason: str) -> None:
    services.input_files_restore(request=file.workflow.request, lfns=[file.lfn], actor=actor, reason=reason)


declare(
    ResourceType(
        InputFile, "input-file", "file", lambda key: InputFile.objects.filter(pk=key),
        lambda file: (file.excluded_kind, file.lfn),
    ),
    Action(
        "restore", "Let in again", "Let a single input file in again: a further round reads it after all.", _restore,
        preview_each(lambda f: ["It is read after all, in a further round.", f"Left out because: {f.excluded_reason}"]),
        refused=restore_refused,
    ),
)  # fmt: skip
