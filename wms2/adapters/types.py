"""What the adapters take and answer: frozen dataclasses in our own words.

What is a row of a service's answer as well names the service's word for a field, where that is another, as its alias: pydantic
makes it of the JSON. Answers of other shapes are in ``wire``.

Sizes are bytes, times Unix seconds, lumis ``(luminosity section, events or None)``. WMS2's own rows are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

#: A service's null is no text, and no number.
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Number = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]

# --- ConfigCache


class OutputModule(NamedTuple):
    """One output module of a PSet. ``data_tier`` and ``filter_name`` are "" when the PSet names none."""

    label: str
    data_tier: str
    filter_name: str


class ConfigDocument(NamedTuple):
    """A PSet as text with its hash (DBS ``pset_hash``) and its output modules."""

    pset: str
    pset_hash: str
    output_modules: tuple[OutputModule, ...]


# --- CRIC


class SiteRow(NamedTuple):
    """A name in CRIC's site-names preset: the site CRIC calls ``site_name`` ("FNAL") is ``alias`` ("T1_US_FNAL") as ``type``.

    ``type`` is cms, lcg, phedex or psn; the names of the processing sites are the aliases of type psn.
    """

    site_name: str
    alias: str
    type: str


# --- DBS


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """How a file was made: DBS's output module configuration."""

    app_name: str
    release_version: str
    pset_hash: str
    output_module_label: str
    global_tag: Text = ""


class DatasetSpec(NamedTuple):
    """A dataset to be created in DBS, as PRODUCTION. ``primary_ds_type``: mc, data, cosmic or test."""

    dataset: str
    primary_ds_type: str
    acquisition_era: str
    processing_version: int
    physics_group: str
    output_configs: tuple[OutputConfig, ...]
    prep_id: str = ""


class DbsFile(NamedTuple):
    """A file to be registered. ``lumis``: run -> [(lumi, events or None)]; events for all lumis of the file or for none.
    ``is_valid`` False: it was taken back since, so DBS may have it either way."""

    lfn: str
    size_bytes: int
    adler32: str
    events: int
    lumis: Mapping[int, Sequence[tuple[int, int | None]]]
    output_config: OutputConfig
    parents: tuple[str, ...] = ()
    is_valid: bool = True


class BlockSpec(NamedTuple):
    """A whole block to be registered: its dataset, where it lies (an RSE), all its files.

    ``dataset_parents`` or the files' own ``parents``, never both.
    """

    block_name: str
    origin_site: str
    dataset: DatasetSpec
    files: tuple[DbsFile, ...]
    dataset_parents: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The files' sum."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset as DBS has it; ``access_type`` VALID, PRODUCTION, INVALID, DELETED or DEPRECATED."""

    dataset: str
    access_type: Annotated[str, Field(alias="dataset_access_type")]
    primary_ds_type: Text = ""

    @property
    def is_live(self) -> bool:
        """Whether its files may be read, and written."""
        return self.access_type in ("VALID", "PRODUCTION")


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block as DBS has it; one without files has no size."""

    block_name: str
    is_open: Annotated[bool, Field(alias="open_for_writing")]
    file_count: Number = 0
    size_bytes: Annotated[Number, Field(alias="block_size")] = 0
    origin_site: Annotated[Text, Field(alias="origin_site_name")] = ""


@dataclass(frozen=True, slots=True)
class DbsFileInfo:
    """A file as DBS has it."""

    lfn: Annotated[str, Field(alias="logical_file_name")]
    block_name: str
    size_bytes: Annotated[int, Field(alias="file_size")]
    is_valid: Annotated[bool, Field(alias="is_file_valid")]
    events: Annotated[Number, Field(alias="event_count")] = 0
    adler32: Text = ""


class FileLumi(NamedTuple):  # a tuple is made in a third of the time: there are millions
    """One lumi section of one file; ``events`` is None where DBS does not know it."""

    lfn: str
    run: int
    lumi: int
    events: int | None


@dataclass(frozen=True, slots=True)
class FileParent:
    """One parent of one file."""

    lfn: Annotated[str, Field(alias="logical_file_name")]
    parent_lfn: Annotated[str, Field(alias="parent_logical_file_name")]


# --- HTCondor


class JobStatus(IntEnum):
    """HTCondor's ``JobStatus``."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING_OUTPUT = 6
    SUSPENDED = 7


class DagStatus(IntEnum):
    """``DAG_Status`` of DAGMan's job ad and ``DagStatus`` of its metrics."""

    OK = 0
    ERROR = 1  # also: the DAG file could not be read
    NODE_FAILED = 2
    ABORT = 3  # ABORT-DAG-ON
    REMOVED = 4
    CYCLE = 5
    HALTED = 6  # set at the end of a drain by 25.x; 23.9 leaves 0


def _attribute(name: str) -> Any:
    return field(default=None, metadata={"attribute": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class DagmanJob:
    """What is known of a DAGMan job wherever it is found: its ``WMS2_*`` stamps, and its ``DAG_*`` attributes.

    These are absolute, latest wins; None until DAGMan wrote them, about 1 s after its start.
    ``max_jobs``: units that an outer DAGMan runs at once at most; 0: as its files say. ``jobs_completed`` counts jobs that ended,
    whatever their exit code. ``counted_at_seconds`` is when DAGMan wrote them.
    All values are plain, so that ``dataclasses.asdict`` fits a JSON column.
    """

    dag_status: int | None = _attribute("DAG_Status")
    in_recovery: bool = False
    nodes_total: int | None = _attribute("DAG_NodesTotal")
    nodes_done: int | None = _attribute("DAG_NodesDone")
    nodes_failed: int | None = _attribute("DAG_NodesFailed")
    nodes_queued: int | None = _attribute("DAG_NodesQueued")
    jobs_idle: int | None = _attribute("DAG_JobsIdle")
    jobs_held: int | None = _attribute("DAG_JobsHeld")
    jobs_running: int | None = _attribute("DAG_JobsRunning")
    jobs_completed: int | None = _attribute("DAG_JobsCompleted")
    max_jobs: int | None = _attribute("DAGMan_MaxJobs")
    counted_at_seconds: int | None = _attribute("DAG_AdUpdateTime")
    cluster: int
    dag_id: str
    request_name: str
    fence: int | None
    job_status: int
    queued_at_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DagmanAd(DagmanJob):
    """A DAGMan job in the queue: a DAG's (``parent_cluster`` None) or a running work unit's.

    ``node`` is the unit's node in the outer DAG, e.g. ``mg_000001``; an inner DAGMan is given its outer's ``dag_id``,
    ``request_name`` and ``fence``. Idle with ``job_starts`` above 0: it was killed and will start again in recovery mode.
    """

    parent_cluster: int | None
    node: str
    hold_reason: str
    job_starts: int
    status_since_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAd(DagmanJob):
    """How an outer DAGMan ended, from the schedd's history.

    ``exit_code`` is None when it was removed or died by a signal; ``remove_reason`` is "" unless it was removed.
    ``started_at_seconds``: its last start, of several when it was killed with its host; None when it never started.
    """

    exit_code: int | None
    remove_reason: str
    started_at_seconds: int | None = None

    @property
    def counters_outdated(self) -> bool:
        """Whether the ``DAG_*`` attributes are of a start before the last one, which wrote none: it gave up while it began."""
        counted, started = self.counted_at_seconds, self.started_at_seconds
        return counted is not None and started is not None and counted < started


class FoundDag(NamedTuple):
    """The DAGMan job of a DAG: the live one if there is one, else the latest by fence.

    ``history`` is set when it has left the queue. More than one cluster in ``in_queue`` is a double submission.
    """

    cluster: int
    fence: int | None
    job_status: int
    in_queue: tuple[int, ...]
    history: HistoryAd | None


class Submission(NamedTuple):
    """One submission of a DAG's directory: its outer DAGMan job, the DAG that this runs, and what all jobs below carry.

    ``directory_id`` is the ``WMS2_DagID`` of node jobs, which later submissions of the directory have too; ``fence`` is
    each one's own.
    """

    cluster: int
    dag_id: str
    directory_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class ScheddAd:
    """What a schedd says about itself. A changed ``job_queue_birthdate_seconds`` is evidence that its queue was lost.

    ``heard_at_seconds`` is when the collector heard of it last. The rest is None where it is unknown: whether it starts
    further DAGMans (``accepting``), its duty cycle (0 to 1), DAGMans of everybody that run, how many of one owner may, and how
    many jobs have ended since it started. ``owner``: whose the jobs are that we submit there; "" in a collector's copy.
    """

    name: str
    version: str
    job_queue_birthdate_seconds: int | None
    heard_at_seconds: int | None = None
    jobs_idle: int = 0
    jobs_running: int = 0
    accepting: bool | None = None
    duty_cycle: float | None = None
    dagmans: int | None = None
    owner_dagmans: int | None = None
    owner: str = ""


#: States of a node job, as they are counted: waiting for a slot, in one, on hold.
JOB_IDLE, JOB_RUNNING, JOB_HELD = "idle", "running", "held"
JOB_STATES = (JOB_IDLE, JOB_RUNNING, JOB_HELD)


class JobGroup(NamedTuple):
    """Node jobs in a queue that are alike: ``dag_id`` is that of their directory, ``role`` landing, processing, merge or cleanup.

    ``state`` is one of ``JOB_STATES``; ``site`` where they run or wait to, "" for landing jobs that may go to several.
    """

    dag_id: str
    role: str
    state: str
    site: str
    jobs: int


class UnbegunUnit(NamedTuple):
    """A work unit none of whose jobs has begun: the site at which they wait, since the newest was submitted."""

    site: str
    since_seconds: int


class Unread(NamedTuple):
    """A DAGMan job whose ad cannot be read: its DAG, as far as it says so, and what is wrong."""

    dag_id: str
    problem: str


class QueueAnswer(NamedTuple):
    """A schedd's answer: what it says about itself, the DAGMan jobs in its queue, and the node jobs, counted; ``unread``:
    outer DAGMan jobs, by cluster, that are there and cannot be read, or a unit's of theirs."""

    about: ScheddAd
    dagmans: list[DagmanAd]
    jobs: list[JobGroup]
    unread: Mapping[int, Unread] = MappingProxyType({})


class OrphanJobs(NamedTuple):
    """Jobs of ours in a queue that name a DAG which is not run: ``dagmans`` of either level, and node ``jobs``."""

    dag_id: str
    request_name: str
    dagmans: int
    jobs: int


class SiteSlots(NamedTuple):
    """A site's cores in the pool, summed over its partitionable and static slots (dynamic ones are parts of those)."""

    site: str
    cpus: int
    free_cpus: int


class PoolAnswer(NamedTuple):
    """What a pool's collector says: its schedds' ads, with the jobs of all owners, and slots by site; ``unread``: what is wrong
    with ads that are left out."""

    schedds: tuple[ScheddAd, ...]
    slots: tuple[SiteSlots, ...]
    unread: str = ""


class ScheddFacts(NamedTuple):
    """What a schedd itself says of itself, how many jobs and DAGMans it lets one owner have, and DAGMans all; None: no bound."""

    about: ScheddAd
    jobs_per_owner: int | None
    dagmans_per_owner: int | None
    dagmans: int | None
