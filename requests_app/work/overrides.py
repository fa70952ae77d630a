"""What an operator changed for one request alone, typed, as kept in ``Request.overrides`` (error-handling 8.3).

A threshold or a rescue limit holds at once, the limits of categories from the next submission on; retries and sizes are rendered
into DAG files, so they need the next round. What fixes a size that is chosen by measurements otherwise is a pin (``PINS``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dags_app.planning.levels import FIRST_TASK, all_tasks
from dags_app.planning.measured import CUTS, OF_A_TASK, Pins
from dags_app.planning.specs import WorkflowSpec
from dags_app.planning.throttles import Throttles
from requests_app.limits import limits_now
from requests_app.models import Request
from sites_app.models import Pool
from wms2.conf import Limits, conf
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime.in_force import in_force
from wms2.runtime.json_columns import known

#: Processing jobs of one DAG in the queue at once, where its request has no limit of its own.
DAG_MAX_PROCESSING = 5000


class Overrides(BaseModel):
    """Unset fields leave the installation's value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_hold_threshold: float | None = Field(
        None, gt=0, le=1, description="share of failed work units that holds it, above 0 to 1"
    )
    error_max_rescue_attempts: int | None = Field(None, ge=0, le=100, description="rescues after failures before it is held")
    retry_processing: int | None = Field(None, ge=0, le=20, description="retries of a processing job")
    retry_merge: int | None = Field(None, ge=0, le=20, description="retries of a merge job")
    max_excluded_fraction: float | None = Field(
        None, ge=0, le=1, description="share of its wanted input files that it may complete without"
    )
    pass_fraction: float | None = Field(
        None, ge=0, le=1, description="share of the events asked for that is enough in DBS, of each of its datasets"
    )
    memory_mb: int | None = Field(None, ge=100, le=10**7, description="of a processing job, all its cores together")
    cores: int | None = Field(None, ge=1, le=1024, description="of a processing job")
    events_per_job: int | None = Field(None, ge=1, le=10**12, description="of the first task, where it is split by events")
    lumis_per_job: int | None = Field(None, ge=1, le=10**6, description="of the first task, where it is split by lumis")
    files_per_job: int | None = Field(None, ge=1, le=10**5, description="of the first task, where it is split by files")
    layouts: tuple[str, ...] | None = Field(
        None, description="how steps run in a job, of any task: STEP=PROCESSESxTHREADS, separated by spaces"
    )
    task_sizes: tuple[str, ...] | None = Field(
        None, description=f"of one task's jobs, before what is said of all: TASK:SIZE=NUMBER; sizes: {', '.join(OF_A_TASK)}"
    )
    jobs_per_work_unit: int | None = Field(None, ge=1, le=10_000, description="processing jobs that are merged together")
    work_units_per_round: int | None = Field(None, ge=1, le=5_000, description="of each further round")
    max_merge_groups: int | None = Field(None, ge=1, le=1000, description="its work units that run at the same time")
    max_processing: int | None = Field(None, ge=1, le=10**6, description="its processing jobs in the queue at the same time")
    max_merge: int | None = Field(None, ge=1, le=1000, description="its merge jobs in the queue at the same time")
    max_cleanup: int | None = Field(None, ge=1, le=1000, description="its cleanup jobs in the queue at the same time")

    pools: tuple[str, ...] | None = Field(None, description="HTCondor pools that its DAGs may go to; without it, all")
    effect_max_retry_seconds: int | None = Field(
        None, ge=0, le=10**8, description="for how long a registration is tried after its first failure"
    )

    @property
    def needs_next_round(self) -> bool:
        """Whether a rescue would not see it: its DAG files are rendered."""
        return any(getattr(self, name) is not None for name in ("retry_processing", "retry_merge", *PINS))

    def set_fields(self) -> dict[str, Any]:
        """What was set, as JSON."""
        return self.model_dump(mode="json", exclude_none=True)


#: Those that limit what runs at the same time.
THROTTLES = ("max_merge_groups", "max_processing", "max_merge", "max_cleanup")

#: Those that say how much may fail, and how often it is tried again.
ERROR_LIMITS = (
    "error_hold_threshold", "error_max_rescue_attempts", "retry_processing", "retry_merge", "max_excluded_fraction",
    "pass_fraction",
)  # fmt: skip

#: Those that fix what a round is sized with.
PINS = (
    "memory_mb", "cores", "layouts", "events_per_job", "lumis_per_job", "files_per_job", "task_sizes", "jobs_per_work_unit",
    "work_units_per_round",
)  # fmt: skip
_LAYOUT = re.compile(r"(.+)=([1-9]\d{0,2})x([1-9]\d{0,2})")
_TASK_SIZE = re.compile(rf"([1-9]\d?):({'|'.join(OF_A_TASK)})=([1-9]\d{{0,11}})")


def overrides_of(request: Request) -> Overrides:
    """The overrides in force for a request. What another release stored beyond the bounds of this one counts as the bound."""
    stored = known(Overrides, request.overrides)
    try:
        return Overrides.model_validate(stored)
    except ValidationError as error:
        beyond = [each for each in error.errors() if each["type"] in ("greater_than_equal", "less_than_equal")]
        bounds = {str(each["loc"][0]): next(iter(each["ctx"].values())) for each in beyond}
        if not bounds:
            raise
        return Overrides.model_validate(stored | bounds)


def check_pins(changed: Overrides, spec: WorkflowSpec) -> None:
    """Refuse cores and memory outside the window of this installation (spec 5.2), and what its splitting does not read.

    Raises:
        InvalidTransition: saying the largest possible value, or how it is split.
    """
    tasks, asked = {task.number: task for task in all_tasks(spec)}, _pins(changed)
    if unknown := sorted(asked.tasks.keys() - tasks.keys()):
        raise InvalidTransition(f"task_sizes: it has no task {unknown[0]}; its tasks: {' '.join(map(str, tasks))}")
    for number, task in tasks.items():
        pins = asked.of(number)
        cores = pins.cores or task.resources.cores
        memory_mb = pins.memory_mb or (task.resources.memory_mb if pins.cores else 0)
        most = cores * in_force().max_memory_per_core_mb
        if memory_mb > most:
            raise InvalidTransition(
                f"memory_mb {memory_mb} is too much for {cores} cores of task {number}; at most {most} are possible"
            )
        first = number == FIRST_TASK
        algorithm = spec.splitting.algorithm if first else task.algorithm
        read = algorithm.parameters if first else algorithm.parameters[:1]
        if unread := [name for name in CUTS if getattr(pins, name) is not None and name not in read]:
            raise InvalidTransition(f"{unread[0]}: task {number} is split by {algorithm}, which does not read it")
    if strange := sorted(asked.layouts.keys() - {step.name for step in spec.steps}):
        raise InvalidTransition(f"layouts: it has no step {strange[0]}; its steps: {' '.join(step.name for step in spec.steps)}")


def pins_of(request: Request) -> Pins:
    """What an operator has fixed for the sizes of this request's rounds."""
    return _pins(overrides_of(request))


def _pins(own: Overrides) -> Pins:
    plain = {field.name: getattr(own, field.name) for field in fields(Pins) if field.name not in ("layouts", "tasks")}
    return Pins(**plain, layouts=read_layouts(own.layouts or ()), tasks=read_task_sizes(own.task_sizes or ()))


def read_pools(names: Iterable[str]) -> list[str]:
    """Names of pools, each once.

    Raises:
        FieldRefused: there is no such pool.
    """
    wanted, pools = list(dict.fromkeys(names)), set(Pool.objects.values_list("name", flat=True))
    if strange := [name for name in wanted if name not in pools]:
        raise FieldRefused("pools", f"there is no pool {strange[0]}; known: {', '.join(sorted(pools)) or 'none'}")
    return wanted


def read_layouts(texts: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Step -> processes, and threads of each.

    Raises:
        FieldRefused: a text has another form.
    """
    found = {}
    for text in texts:
        if (parts := _LAYOUT.fullmatch(text)) is None:
            raise FieldRefused("layouts", f"{text!r} is not STEP=PROCESSESxTHREADS")
        found[parts[1]] = (int(parts[2]), int(parts[3]))
    return found


def read_task_sizes(texts: Iterable[str]) -> dict[int, dict[str, int]]:
    """Task's number -> size -> value.

    Raises:
        FieldRefused: a text has another form.
    """
    found = defaultdict[int, dict[str, int]](dict)
    for text in texts:
        if (parts := _TASK_SIZE.fullmatch(text)) is None:
            raise FieldRefused("task_sizes", f"{text!r} is not TASK:SIZE=NUMBER; sizes: {', '.join(OF_A_TASK)}")
        found[int(parts[1])][parts[2]] = int(parts[3])
    return dict(found)


def limits_of(request: Request, base: Limits) -> Limits:
    """The limits ``base`` with what an operator changed for this request alone."""
    own = overrides_of(request).model_dump(exclude_none=True)
    return base.model_copy(update=known(Limits, own))


def max_rescues(request: Request) -> int:
    """Failure rescues of a round of this request."""
    return limits_of(request, limits_now()).error_max_rescue_attempts


def pass_fraction(request: Request, tier: str) -> float:
    """Share of the events that this request's dataset of this tier is to have in DBS."""
    own, of_tier = overrides_of(request).pass_fraction, conf().pass_fraction_of
    return of_tier.get(tier, of_tier["*"]) if own is None else own


def throttles_of(request: Request, most_groups: int) -> Throttles:
    """The limits of the request's DAGs by category, from their next submission on, rescues included; ``most_groups`` is
    ``dag_max_merge_groups`` as it is in force."""
    own = overrides_of(request)
    processing = own.max_processing or DAG_MAX_PROCESSING
    return Throttles(own.max_merge_groups or most_groups, processing, own.max_merge, own.max_cleanup)
