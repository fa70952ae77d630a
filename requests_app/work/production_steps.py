"""Partial production: when a share of its work is done, a request steps back in priority (spec 6.2.1).

See docs/design/model.md, Partial production. Owns what a step is and when one is passed. The life cycle stops the DAG for it
(``lifecycle.steps``); operators change the steps with ``services.actions``. A share is of the whole request's work, by its
account: it can be met no closer than by whole units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dags_app.models import LIVE_UNIT, WorkUnit
from requests_app.models import Request, RequestTransition, Workflow
from requests_app.work.ledger import Ledger
from requests_app.work.spec import spec_of
from wms2.errors import InvalidTransition
from wms2.runtime.json_columns import known

#: Where the evidence of a transition that takes a step keeps the priority and the steps that stood before.
STEP_BEFORE = "before_step"
#: A step that is taken at more than so many times its share is warned of.
_NOTICED = 1.1
_NAMED = "the production step at"
#: More steps than these are no plan.
MAX_STEPS = 20


class ProductionStep(BaseModel):
    """At ``fraction`` of the work done the rest goes on with ``priority``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fraction: float = Field(gt=0, lt=1)
    priority: int = Field(ge=0, le=999_999)


def steps_read(values: Sequence[Mapping[str, Any]]) -> tuple[ProductionStep, ...]:
    """Validate steps that are asked for.

    Raises:
        InvalidTransition: naming the step and the field that is wrong.
    """
    if len(values) > MAX_STEPS:
        raise InvalidTransition(f"production_steps: {len(values)} are too many; at most {MAX_STEPS}")
    steps = []
    for number, value in enumerate(values):
        try:
            steps.append(ProductionStep.model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InvalidTransition(f"production_steps[{number}].{place}: {first['msg']}") from error
        if number and steps[number].fraction <= steps[number - 1].fraction:
            raise InvalidTransition(f"production_steps[{number}].fraction: is not above that of the step before")
        if number and steps[number].priority >= steps[number - 1].priority:
            raise InvalidTransition(f"production_steps[{number}].priority: is not below that of the step before")
    return tuple(steps)


def steps_refused(steps: Sequence[ProductionStep], *, priority: int, urgent: bool) -> str:
    """Why a request cannot have these steps; empty if it can."""
    if steps and urgent:
        return "an urgent request does not step back: give it no steps, or do not make it urgent"
    if steps and steps[0].priority >= priority:
        return f"the priority of the step at {steps[0].fraction:.1%} is not below the request's, {priority}"
    return ""


def before_steps(request: Request) -> dict[str, Any]:
    """Priority and steps of a request as they were before its steps were taken; what people have said since then stands."""
    found = {"priority": request.priority, "production_steps": request.production_steps}
    taken = RequestTransition.objects.filter(request=request, evidence__has_key=STEP_BEFORE).order_by("-id")
    for evidence in taken.values_list("evidence", flat=True):
        found |= {name: evidence[STEP_BEFORE][name] for name, value in found.items() if evidence[name] == value}
    return found


def steps_of(request: Request) -> tuple[ProductionStep, ...]:
    """The steps that are still to come."""
    return tuple(ProductionStep.model_validate(known(ProductionStep, step)) for step in request.production_steps)


def share_done(ledger: Ledger) -> float:
    """Share of the work that is done, 0 to 1; what is excluded or refused is no work."""
    done, everything = _work(ledger)
    return done / everything if everything > 0 else 0.0


def work_to_step(steps: Sequence[ProductionStep], ledger: Ledger) -> int | None:
    """Work that is left, as ``planning.work_units.work_of`` counts it, until the next step is passed; None without one."""
    done, everything = _work(ledger)
    to_come = steps[steps_passed(steps, share_done(ledger)) :]
    return max(1, ceil(round(to_come[0].fraction * everything - done, 6))) if to_come else None


def steps_rounded(steps: Sequence[ProductionStep], ledger: Ledger, units: Sequence[int]) -> list[str]:
    """Warnings of steps that whole work units meet badly, by the work of the units that are planned, in their order."""
    done, everything = _work(ledger)
    warnings: list[str] = []
    for step in steps[steps_passed(steps, share_done(ledger)) :]:
        reached = next((share for sum_ in accumulate(units) if (share := (done + sum_) / everything) >= step.fraction), 0.0)
        warnings += _rounded(step, max(units) / everything, reached)
    return warnings


def steps_rounded_by(steps: Sequence[ProductionStep], ledger: Ledger, unit: float) -> list[str]:
    """The same before units are planned, by what one is taken to have of the work; planning says it again."""
    done, everything = _work(ledger)
    warnings: list[str] = []
    for step in steps[steps_passed(steps, share_done(ledger)) :]:
        whole = done + ceil(round((step.fraction * everything - done) / unit, 6)) * unit
        warnings += _rounded(step, unit / everything, min(whole / everything, 1))
    return warnings


def work_of_a_unit(workflow: Workflow, ledger: Ledger, jobs: int) -> float:
    """What a work unit has of the work, on average of those planned; before that, of a generation, in ``jobs`` jobs, else 0."""
    units = WorkUnit.objects.filter(workflow=workflow, state__in=LIVE_UNIT).count()
    made = spec_of(workflow).generation
    if not units:
        return made.events_per_job * jobs if made is not None else 0
    planned = ledger.planned_lumis if ledger.by_lumi else ledger.planned_events if ledger.all_events else ledger.planned_files
    return (_work(ledger)[0] + planned) / units


def of_steps(warnings: Iterable[str]) -> list[str]:
    """Those of a request's warnings that are about its steps."""
    return [text for text in warnings if text.startswith(_NAMED)]


def _rounded(step: ProductionStep, unit: float, reached: float) -> list[str]:
    if reached <= step.fraction * _NOTICED:
        return []
    name = f"{_NAMED} {step.fraction:.1%}"
    return [f"{name} cannot be met with work units of {min(unit, 1):.1%} of the work: it is taken at {reached:.1%}"]


def _work(ledger: Ledger) -> tuple[int, int]:
    """Done, and all of it."""
    if ledger.by_lumi:
        out = ledger.excluded_lumis + ledger.refused_lumis + ledger.inherited_lumis
        return ledger.done_lumis, ledger.all_lumis - out
    if ledger.all_events:
        inherited = ledger.inherited_events if ledger.all_files else 0
        return ledger.done_events, ledger.all_events - ledger.excluded_events - inherited
    return ledger.done_files, ledger.all_files - ledger.excluded_files - ledger.inherited_files


def steps_passed(steps: Sequence[ProductionStep], share: float) -> int:
    """How many of the steps, from the first on, are passed at this share."""
    return next((number for number, step in enumerate(steps) if step.fraction > share), len(steps))
