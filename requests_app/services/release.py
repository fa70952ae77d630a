"""Releasing a held request, as it is or with changes (error-handling 3.4, 4.1, 8.3; docs/design/model.md, Release)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dags_app.models import DAG, DAGKind, WorkUnit, WorkUnitState
from requests_app import states
from requests_app.models import AFTER_WORK, HoldCode, Request, RequestStatus, RequestTransition, Round, Workflow
from requests_app.services.common import give_up, recorded_operation
from requests_app.services.input_files import input_files_exclude
from requests_app.work.exclusions import exclusions_accept, exclusions_too_many, only_bad_input_left
from requests_app.work.overrides import Overrides, check_pins, max_rescues, overrides_of
from requests_app.work.rounds import RoundFiles, dag_fenced_last, dag_run_last, rescue_kind, round_files_read, round_open
from requests_app.work.spec import spec_of
from sites_app.selectors import sites_named
from sites_app.services import site_ban_by_operator
from wms2.actions import applies
from wms2.errors import InvalidTransition

S = RequestStatus


class ReleaseMode(StrEnum):
    """How a released request goes on."""

    RESCUE = "rescue"  # the same DAG, from its rescue file: what failed is tried again
    NEXT_ROUND = "next_round"  # what is done counts, the rest is planned anew


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed with the release."""

    overrides: Overrides = field(default_factory=Overrides)
    site_bans: tuple[str, ...] = ()
    excluded_files: tuple[str, ...] = ()
    accept_excluded: bool = False  # the request may complete without the files that were left out

    @property
    def needs_next_round(self) -> bool:
        """Whether a rescue would not see it."""
        return bool(self.excluded_files) or self.overrides.needs_next_round


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """What a release would do."""

    mode: ReleaseMode | None  # None: no round is open, what is left is planned
    why: str
    units_done: int = 0
    units_again: int = 0


def request_release(
    *, request: Request, actor: str, reason: str, mode: ReleaseMode | None = None, changes: Changes | None = None
) -> ReleasePlan:
    """HELD -> QUEUED, or SUBMITTED when no workflow exists yet, or VALIDATING_OUTPUTS after its last job. Completed work stays.

    Args:
        mode: None chooses: the next round when rescues are used up, the DAG aborted itself, or a change cannot reach a rescue.

    Raises:
        InvalidTransition: it is not held, or a change is impossible; nothing was changed.
    """
    asked = changes or Changes()
    files = round_files_read(request)
    with recorded_operation(request, actor, "request_release", reason, **_evidence(mode, asked)):
        applies(request, release_refused(request))
        workflow = Workflow.objects.filter(request=request).first()
        plan = _plan(request, mode, asked, files)
        if workflow is None and _evidence(mode, asked).keys() != {"mode"}:
            raise InvalidTransition("it has no workflow yet that could be changed; release it without changes")
        if workflow is not None:
            if plan.mode is ReleaseMode.NEXT_ROUND:
                give_up(request, f"released for the next round: {reason}", files)
            _apply(request, workflow, asked, actor, reason)
        ready = workflow is not None and (workflow.input_imported_at is not None or not workflow.input_dataset)
        to = S.VALIDATING_OUTPUTS if held_after_work(request) else S.QUEUED if ready else S.SUBMITTED
        states.transition(request, to, actor=actor, reason=reason, next_attempt_at=None, failed_attempts=0, last_error="")
    return plan


def release_refused(request: Request) -> str:
    """Why it cannot be released; empty if it can."""
    return "" if request.status == S.HELD else f"It is {request.get_status_display()}; only a held request can be released."


def held_after_work(request: Request) -> bool:
    """Whether it was held with its work done: nothing needs a slot unless work was taken back since, which it finds out."""
    last = RequestTransition.objects.filter(request=request).order_by("-id").first()
    return last is not None and last.to_status == S.HELD and last.from_status in AFTER_WORK


def release_plan(request: Request, mode: ReleaseMode | None = None) -> ReleasePlan:
    """What a release would do now; changes nothing.

    Raises:
        InvalidTransition: the mode asked for is impossible.
    """
    return _plan(request, mode, Changes(), round_files_read(request))


def _plan(request: Request, mode: ReleaseMode | None, asked: Changes, files: RoundFiles) -> ReleasePlan:
    workflow = Workflow.objects.filter(request=request).first()
    round_ = round_open(workflow) if workflow else None
    if round_ is None:
        if mode is ReleaseMode.RESCUE:
            raise InvalidTransition("there is no round to rescue; release it without a mode")
        return ReleasePlan(None, "its outputs are validated again" if held_after_work(request) else "what is left is planned")
    units = WorkUnit.objects.filter(round=round_)
    done = units.filter(state=WorkUnitState.DONE).count()
    chosen, why = _choose(request, round_, mode, asked, files)
    return ReleasePlan(chosen, why, done, units.count() - done)


def _choose(
    request: Request, round_: Round, mode: ReleaseMode | None, asked: Changes, files: RoundFiles
) -> tuple[ReleaseMode, str]:
    obstacle = _no_rescue(request, round_, asked, files)
    if mode is ReleaseMode.RESCUE:
        if obstacle:
            raise InvalidTransition(f"it cannot be rescued: {obstacle}")
        if asked.needs_next_round:
            raise InvalidTransition("excluded files, sizes and retries do not reach a rescue; release it with mode next_round")
        return mode, "asked for"
    if mode is ReleaseMode.NEXT_ROUND:
        return mode, "asked for"
    if obstacle:
        return ReleaseMode.NEXT_ROUND, obstacle
    if request.hold_code == HoldCode.RESCUES:
        return ReleaseMode.NEXT_ROUND, "its rescue attempts are used up"
    if asked.needs_next_round:
        return ReleaseMode.NEXT_ROUND, "the changes do not reach a rescue"
    if _lost_dag(round_) is not None:
        return ReleaseMode.NEXT_ROUND, "jobs of the lost queue may still write under the names of its round"
    return ReleaseMode.RESCUE, "its rescue file is there"


def _no_rescue(request: Request, round_: Round, asked: Changes, files: RoundFiles) -> str:
    """Why the round's last DAG cannot be rescued, now or after the release; empty if it can."""
    last = dag_run_last(round_)
    if last is None:
        return "no DAG of the round has run"
    if not WorkUnit.objects.filter(round=round_, state=WorkUnitState.PLANNED).exists():
        return "no work unit is left"
    wanted = asked.overrides.error_max_rescue_attempts
    if rescue_kind(last) is DAGKind.FAILURE_RESCUE and not (max_rescues(request) if wanted is None else wanted):
        return "no rescue is allowed after failures: error_max_rescue_attempts is 0"
    if rescue_kind(last) is DAGKind.FAILURE_RESCUE and only_bad_input_left(round_, files.bad_input(round_)):
        return "what is left gave up over input files, which a rescue would read again"
    lost = _lost_dag(round_)
    return (files.rescue_obstacle(lost) if lost is not None else "") or files.rescue_obstacle(last)


def _lost_dag(round_: Round) -> DAG | None:
    """The round's newest submission, recorded or not, if it was lost."""
    newest = dag_fenced_last(round_)
    return newest if newest is not None and newest.outcome.get("lost") else None


def _apply(request: Request, workflow: Workflow, asked: Changes, actor: str, reason: str) -> None:
    if asked.overrides.set_fields():
        request.overrides = {**request.overrides, **asked.overrides.set_fields()}
        check_pins(overrides_of(request), spec_of(workflow))
        request.save(update_fields=["overrides"])
    for site in sites_named(asked.site_bans, "site_bans"):
        site_ban_by_operator(site=site, actor=actor, reason=reason, workflow=workflow, insist=True)
    if asked.excluded_files:
        input_files_exclude(workflow=workflow, lfns=asked.excluded_files, actor=actor, reason=reason)
    if asked.accept_excluded:
        exclusions_accept(workflow=workflow, actor=actor, reason=reason)
    if request.hold_code == HoldCode.EXCLUDED and exclusions_too_many(request, workflow):
        raise InvalidTransition(
            "it would be held again: let input files in again, accept with accept_excluded that they are left out, "
            "or give it another max_excluded_fraction"
        )


def _evidence(mode: ReleaseMode | None, asked: Changes) -> dict[str, Any]:
    files = list(asked.excluded_files[:100])
    others = {"site_bans": list(asked.site_bans), "excluded_files": files, "accept_excluded": asked.accept_excluded}
    given = {name: value for name, value in others.items() if value}
    return {"mode": mode.value if mode else "", **asked.overrides.set_fields(), **given}
