"""Reading a work unit's manifest (``merge_output.json``; docs/payload-contract.md). Typed at the edge, never trusted.

Pure apart from reading the one file. Same major schema version accepted, unknown keys ignored, missing ones refused. What jobs
measured is another matter: metrics that cannot be believed are dropped, all of the unit's, and its files count all the same.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic import ValidatorFunctionWrapHandler as Read

from dags_app.payload.contract.layout import MANIFEST_SCHEMA

log = structlog.get_logger(__name__)

MAX_BYTES = 256 * 1024 * 1024

# What no job can have measured: more than a year in a slot, 16 TB of memory, 1024 processes, 2^53 events or bytes.
_MAX_SECONDS = 366 * 86400.0
_Seconds = Annotated[FiniteFloat, Field(ge=0, le=_MAX_SECONDS)]
_Megabytes = Annotated[FiniteFloat, Field(ge=0, le=16 * 1024 * 1024)]
_Side = Annotated[int, Field(ge=1, le=1024)]
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Rse = Annotated[str, Field(max_length=100)]
# Minor versions.
_MEASURES_FROM, _PLACES_FROM = 2, 3


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class ProcessedFile(_Model):
    """Events of one input file that a job read."""

    lfn: str
    events: int = Field(ge=0)
    first_event: int | None = None
    last_event: int | None = None


class Processed(_Model):
    """What a job's first step really read or generated. ``lumis``: run -> [[first, last], ...]."""

    events: int = Field(ge=0)
    lumis: dict[int, list[tuple[int, int]]]
    files: list[ProcessedFile] = Field(default_factory=list)


class ManifestJob(_Model):
    """One processing job's share."""

    node: str
    task: int = 1  # of a chain: later tasks read what the unit's own earlier nodes left
    processed: Processed


class GeneratedEvents(_Model):
    """Event numbers that one job generated in a run."""

    run: int
    first_event: int
    last_event: int


class Pieces(_Model):
    """What of the unit's claim a merged file was made from, no matter what a filter left of it.

    Files as in ``Processed``; lumis are those that the jobs read or generated: run -> [[first, last], ...]. ``shared``: jobs of a
    later task divided what was made of them, so other merged files hold the rest of the same pieces.
    """

    generated: list[GeneratedEvents] = Field(default_factory=list)
    files: list[ProcessedFile] = Field(default_factory=list)
    lumis: dict[int, list[tuple[int, int]]]
    shared: bool = False


class ManifestFile(_Model):
    """One merged file. ``lumis``: run -> [[lumi, events], ...]; events null where cmsRun did not report them."""

    lfn: str = Field(pattern=r"^/store/[A-Za-z0-9/_.+-]+\.root$", max_length=700)
    rse: _Rse = Field(default="", min_length=1)  # from 1.3 on; before, files lie at the manifest's RSE
    size_bytes: int = Field(gt=0, le=2**53)
    adler32: str = Field(pattern=r"^[0-9a-f]{8}$")
    events: _Count
    lumis: dict[int, list[tuple[int, int | None]]]
    parents: list[str] = Field(default_factory=list)
    pieces: Pieces | None = None  # from 1.1 on


class ManifestOutput(_Model):
    """The merged files of one output dataset."""

    dataset: str
    module: str
    step: str
    files: list[ManifestFile]


class JobMetrics(_Model):
    """One step as one processing job ran it. Memory in MB of 1024 x 1024 bytes.

    ``wall_seconds`` of the step in the slot, ``cpu_seconds`` of all its processes; ``threads`` and ``peak_rss_mb`` of one
    process, ``slot_rss_mb`` their peaks added up. ``cgroup_peak_mb`` is of the whole job, None where there was none to read.
    ``bytes_written``: by output module, also of files that are not kept.
    """

    node: str
    processes: _Side
    threads: _Side
    wall_seconds: _Seconds
    cpu_seconds: Annotated[FiniteFloat, Field(ge=0, le=_MAX_SECONDS * 1024)]
    peak_rss_mb: _Megabytes
    slot_rss_mb: _Megabytes
    cgroup_peak_mb: _Megabytes | None = None
    events_read: _Count
    events_written: _Count
    bytes_written: dict[str, _Count]


class StepMetrics(_Model):
    """A step over the jobs of a unit; ``processes`` and ``threads`` are the most that any of them ran."""

    processes: _Side
    threads: _Side
    jobs: tuple[JobMetrics, ...]

    @model_validator(mode="after")
    def _has_each_node_once(self) -> Self:
        if len({job.node for job in self.jobs}) != len(self.jobs):
            raise ValueError("a node is there twice")
        return self


class Metrics(_Model):
    """What the unit's jobs measured, by step."""

    steps: dict[str, StepMetrics] = Field(default_factory=dict)


class Manifest(_Model):
    """A unit's whole account. ``rse``: of the site's own storage; its files may lie at a fallback's."""

    schema_: str = Field(alias="schema", pattern=rf"^{re.escape(MANIFEST_SCHEMA)}(\.\d+)?$")
    request_name: str
    workflow_id: str
    dag_id: str
    unit: str
    fence: int
    site: str = Field(max_length=100)
    rse: _Rse
    jobs: list[ManifestJob] = Field(min_length=1)
    outputs: list[ManifestOutput]
    metrics: Metrics = Field(default_factory=Metrics)  # from 1.2 on; older ones had sums in another form

    @field_validator("metrics", mode="wrap")
    @classmethod
    def _drop_damaged(cls, value: object, read: Read, info: ValidationInfo) -> Metrics:
        if _minor(info.data.get("schema_", "")) < _MEASURES_FROM:
            return Metrics()
        try:
            return read(value)  # type: ignore[no-any-return]
        except ValidationError as error:
            names = ("request_name", "dag_id", "unit")
            log.warning("metrics_dropped", problem=str(error)[:300], **{name: info.data.get(name) for name in names})
            return Metrics()

    @property
    def step_metrics(self) -> dict[str, tuple[JobMetrics, ...]]:
        """The jobs that ran each step; empty when the manifest is older than metrics, or they were damaged."""
        return {name: step.jobs for name, step in self.metrics.steps.items()}

    @property
    def tells_pieces(self) -> bool:
        """Whether merged files name their pieces: from 1.1 on. DAGs of an older payload may still run."""
        return _minor(self.schema_) >= 1

    @model_validator(mode="after")
    def _has_pieces(self) -> Self:
        if self.tells_pieces and any(file.pieces is None for output in self.outputs for file in output.files):
            raise ValueError("a merged file does not say which pieces of the claim it holds")
        if _minor(self.schema_) >= _PLACES_FROM and not all(file.rse for output in self.outputs for file in output.files):
            raise ValueError("a merged file does not say at which RSE it lies")
        return self

    @model_validator(mode="after")
    def _has_each_file_once(self) -> Self:
        lfns = [file.lfn for output in self.outputs for file in output.files]
        if len(set(lfns)) != len(lfns):
            raise ValueError("a merged file is there twice")
        return self

    @property
    def claimants(self) -> list[ManifestJob]:
        """The jobs that processed what the unit claims: those of the first task."""
        return [job for job in self.jobs if job.task == 1]


def _minor(schema: str) -> int:
    minor = schema.rpartition("/")[2].partition(".")[2]
    return int(minor) if minor else 0


class ManifestProblem(Exception):
    """The manifest is missing, torn or not what it should be; the unit stays unaccounted."""


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """The manifest and its sha256.

    Raises:
        ManifestProblem: says what is wrong with which file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ManifestProblem(f"{path.name} is larger than {MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise ManifestProblem(f"{path.parent.name}/{path.name}: {error.strerror or error}") from error
    try:
        return Manifest.model_validate_json(content), hashlib.sha256(content).hexdigest()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "document"
        raise ManifestProblem(
            f"{path.parent.name}/{path.name}: {where}: {first['msg']} ({error.error_count()} problems)"
        ) from error
