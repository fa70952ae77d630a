"""What the verification compares: plain, frozen values, gathered by ``storage``, ``catalogues`` and ``rows``.

Nothing here reads anything; the checks over these values are in ``verdicts``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: (run, lumi, event): what names an event in CMS.
EventId = tuple[int, int, int]
#: (run, lumi)
LumiId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RequestLine:
    """Where a request stands, for the progress lines."""

    name: str
    status: str
    waiting_for: str
    units_done: int
    units: int
    hold_code: str = ""
    last_error: str = ""

    def line(self) -> str:
        """One line for people."""
        units = f"{self.units_done} of {self.units} work units" if self.units else "not planned yet"
        why = f" ({self.hold_code})" if self.hold_code else ""
        waits = f"; waits for {self.waiting_for}" if self.waiting_for else ""
        error = f"; {self.last_error.splitlines()[0][:200]}" if self.last_error and not waits else ""
        return f"{self.name}: {self.status}{why}, {units}{waits}{error}"


@dataclass(frozen=True, slots=True)
class RootFile:
    """A file as its bytes on disk tell it; ``problem`` says why they could not be read."""

    lfn: str
    rse: str
    path: str
    size_bytes: int = 0
    adler32: str = ""
    events: tuple[EventId, ...] = ()
    lumis: frozenset[LumiId] = frozenset()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DbsFile:
    """A file as DBS lists it. ``lumis``: events of each lumi, None where DBS has no count."""

    lfn: str
    block: str
    size_bytes: int
    adler32: str
    events: int
    is_valid: bool
    lumis: dict[LumiId, int | None]
    parents: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DbsBlock:
    """A block as DBS lists it."""

    name: str
    is_open: bool
    origin_site: str
    file_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RucioFile:
    """A file of a block in Rucio. ``pfns``: disk RSE -> where its AVAILABLE replica lies."""

    lfn: str
    block: str
    size_bytes: int
    adler32: str
    pfns: dict[str, str]


@dataclass(frozen=True, slots=True)
class RucioBlock:
    """A dataset DID that the container holds."""

    name: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A replication rule in Rucio."""

    rule_id: str
    name: str
    rse_expression: str
    state: str
    copies: int


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """One output dataset, from every side. ``rules`` are those on its container, blocks and files."""

    name: str
    in_dbs: bool
    dbs_blocks: tuple[DbsBlock, ...]
    dbs_files: tuple[DbsFile, ...]
    rucio_blocks: tuple[RucioBlock, ...]
    rucio_files: tuple[RucioFile, ...]
    rules: tuple[Rule, ...]
    on_disk: tuple[RootFile, ...]
    unregistered: tuple[str, ...]  # files in the dataset's directories that Rucio does not know
    parents: frozenset[str] = frozenset()  # datasets it was made from, as DBS says
    refused: str = ""  # why a job of WMCore's does not read it


@dataclass(frozen=True, slots=True)
class Planned:
    """Numbers that one processing job was to generate, as its ``unit.json`` says."""

    run: int
    first_event: int
    last_event: int
    first_lumi: int
    events_per_lumi: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request's document asks for.

    ``numbers`` is (first event, number of events, first lumi) of a generation, None for a request with input.
    ``share`` below 1: some events are filtered away on purpose, so they may be missing, never doubled.
    """

    steps_kept: tuple[str, ...]
    numbers: tuple[int, int, int] | None
    share: float
    input_dataset: str = ""
    merge_bytes: tuple[int, int] = (2**31, 2**32)  # what merged files are to have, at least and at most


@dataclass(frozen=True, slots=True)
class DagRow:
    """A DAG row of WMS2. ``cluster`` is empty when it was never submitted."""

    dag_id: str
    status: str
    cluster: str
    is_live: bool


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round: what its jobs asked for, and what they took by those that reported it."""

    cores: int
    memory_mb: int
    events_per_job: int
    measured: int  # jobs that reported a step
    used_mb: float = 0.0  # p95, of the step that takes most
    off_target: float = 0.0  # mean time of a job over the time that it should take, less 1
    bounds: frozenset[tuple[str, str]] = frozenset()  # what was bounded, and by what
    layouts: str = ""  # processes x threads of each step
    merged: tuple[int, ...] = ()  # bytes of each unit in the largest output dataset
    busy: float = 0.0  # CPU time over the time of the cores
    throughput: float = 0.0  # events per core-hour
    scatter: float = 0.0  # of one job's length, relative: (p95 - p50) / 1.645 / p50

    def bounded(self, what: str) -> bool:
        """Whether anything bounds this number."""
        return any(each == what for each, _ in self.bounds)

    def memory_fits(self) -> bool:
        """At most 25 % above what jobs take, and not below; or at the window's floor."""
        at_floor = ("memory_mb", "default_memory_per_core_mb") in self.bounds
        return at_floor or self.used_mb <= self.memory_mb <= 1.25 * self.used_mb

    def time_fits(self) -> bool:
        """Within 20 % of its target."""
        return abs(self.off_target) <= 0.20

    def size_fits(self, merge_bytes: tuple[int, int]) -> bool:
        """Within 20 % of where merged files are to be."""
        return all(0.8 * merge_bytes[0] <= size <= 1.2 * merge_bytes[1] for size in self.merged)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Cores, memory in MB and events of a job."""
        return self.cores, self.memory_mb, self.events_per_job


@dataclass(frozen=True, slots=True)
class CondorJob:
    """An outer DAGMan job that the schedd has, or had."""

    cluster: int
    dag_id: str
    job_status: int
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of one request's work, counted from the rows. ``left`` is what was not done and will not be done."""

    unit: str  # events, or files
    all: int
    done: int
    planned: int
    excluded: int
    left: int
    violation: str = ""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One request with everything found about it."""

    name: str
    status: str
    asked: Asked
    dataset_steps: tuple[str, ...]  # steps that have an output dataset
    planned: tuple[Planned, ...]
    lost_numbers: int  # event numbers given to work that failed for good
    input_events: tuple[EventId, ...]  # of the input files, as wanted by the document
    input_lumis: frozenset[LumiId]  # of the input files, empty ones included
    input_problems: tuple[str, ...]
    datasets: tuple[DatasetFacts, ...]
    dags: tuple[DagRow, ...]
    open_effects: tuple[str, ...]
    ledger: Ledger
    units_not_done: tuple[str, ...] = field(default=())
    rounds: tuple[RoundRow, ...] = ()  # of an adaptive request
    #: LFNs of input files that lie behind a server -> whether it gave them out.
    input_over_root: dict[str, bool] = field(default_factory=dict)
    reqmgr2_statuses: tuple[str, ...] = ()  # what it went through in ReqMgr2, if it came from there


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What belongs to no single request."""

    jobs: tuple[CondorJob, ...]
    unmerged: tuple[str, ...]  # files below /store/unmerged at any site
    tape_rses: frozenset[str]
    constraints: frozenset[str]  # names of constraints and unique indexes in the database
    forgotten: tuple[str, ...] = ()  # lines of logs: requests in which a sweep found something to do
