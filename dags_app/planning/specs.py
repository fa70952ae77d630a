"""What planning works on: plain, frozen values. No Django, no input or output, no clock.

A ``WorkflowSpec`` says what a request asks for (built by intake, kept in ``Workflow.spec``). Planning turns it, with the work
that the ledger says is left, into ``WorkUnitSpec`` values; ``dagfiles`` renders those. All event and lumi ranges are
inclusive on both ends. Inside an input file events count from 0; generated events carry their real event numbers (64 bit).
Spec 3.1.2, 3.1.3, 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from dags_app.payload.contract import documents
from dags_app.payload.contract.documents import Generate, InputFile, Pileup, Share
from dags_app.payload.contract.step_profile import StepProfile

#: run -> sorted, disjoint, non-adjacent inclusive lumi intervals
LumiRanges = dict[int, tuple[tuple[int, int], ...]]


class SplittingAlgo(StrEnum):
    """Splitting algorithms, spelled as ReqMgr2 spells them, each with what it reads and what it counts."""

    #: The fields of ``SplittingSpec`` that it reads; first the one that says how much a job takes.
    parameters: tuple[str, ...]
    #: Work is lumis, with every file that holds them, instead of files or their events.
    by_lumi: bool

    def __new__(cls, name: str, parameters: tuple[str, ...] = (), by_lumi: bool = False) -> Self:
        """A member is identified by its name alone."""
        member = str.__new__(cls, name)
        member._value_, member.parameters, member.by_lumi = name, parameters, by_lumi
        return member

    @property
    def by_file(self) -> bool:
        """A job takes whole files, however many events they have."""
        return self.parameters[0] == "files_per_job"

    @property
    def by_event(self) -> bool:
        """A job takes as many events as asked, also a part of a lumi."""
        return self.parameters[0] == "events_per_job" and not self.by_lumi

    @property
    def by_lumi_number(self) -> bool:
        """A job takes as many lumis as asked, however many events they have."""
        return self.parameters[0] == "lumis_per_job"

    FILE_BASED = "FileBased", ("files_per_job",)
    EVENT_BASED = "EventBased", ("events_per_job", "events_per_lumi")
    LUMI_BASED = "LumiBased", ("lumis_per_job", "halt_job_on_file_boundaries"), True
    EVENT_AWARE_LUMI_BASED = (
        "EventAwareLumiBased",
        ("events_per_job", "events_per_lumi", "halt_job_on_file_boundaries", "job_time_limit_seconds"),
        True,
    )


class ClaimKind(StrEnum):
    """What a work unit claim ranges over (docs/design/model.md, Claims)."""

    GENERATED = "generated"  # generated events, with the lumis they get
    FILE_EVENTS = "file_events"  # events of one input file
    RUN_LUMIS = "run_lumis"  # lumis of one run, with all files that hold them


class MergeKind(StrEnum):
    """How files of an output are merged: by their format, which follows from the output module that writes them.

    As in CMS production (WMCore's merge tasks): EDM files, NanoAOD that is still in EDM files, and DQMIO are each merged by
    cmsRun with a configuration of their own. ROOT's hadd would write an EDM file without an error that no cmsRun reads.
    """

    EDM = documents.EDM
    NANO = documents.NANO  # NanoAOD kept in EDM files until it is merged
    DQMIO = documents.DQMIO
    PLAIN = documents.PLAIN  # trees and nothing else: the only format that hadd may touch

    @classmethod
    def of(cls, tier: str, class_name: str = "") -> MergeKind:
        """For a tier and the output module's class, one of ``MERGEABLE``; the tier alone decides when it is ""."""
        kind = MERGEABLE[class_name or ("DQMRootOutputModule" if tier == "DQMIO" else "PoolOutputModule")]
        return cls.NANO if kind is cls.EDM and tier in ("NANOAOD", "NANOAODSIM") else kind


#: Classes of output modules whose files can be merged.
MERGEABLE = {
    "PoolOutputModule": MergeKind.EDM,
    "DQMRootOutputModule": MergeKind.DQMIO,
    "NanoAODOutputModule": MergeKind.PLAIN,
}


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One kept output of one step: the dataset its merged files belong to."""

    step: str  # name of the step that writes it
    module: str  # output module label, e.g. "FEVTDEBUGoutput"
    tier: str  # data tier, e.g. "GEN-SIM"
    dataset: str  # /Primary/Era-ProcString-vN/TIER
    merged_lfn_base: str  # /store/mc/<Era>/<Primary>/<TIER>/<ProcString>-v<N>
    unmerged_lfn_base: str  # /store/unmerged/<Era>/<Primary>/<TIER>/<ProcString>-v<N>
    primary_dataset: str
    processed_dataset: str  # Era-ProcString-vN
    acquisition_era: str
    processing_string: str
    processing_version: int
    merge: MergeKind | None = None  # None in specifications of before there were kinds: the tier alone decides


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """What a step asks of GPUs (ReqMgr2's RequiresGPU and GPUParams). Spec 4.5."""

    required: bool  # False: "optional", runs without one too
    memory_mb: int = 0  # GPUMemoryMB
    runtime: str = ""  # CUDARuntime, e.g. "11.2"
    capabilities: tuple[str, ...] = ()  # CUDACapabilities, e.g. ("7.5", "8.0"): any of them
    name: str = ""  # GPUName
    driver_version: str = ""  # CUDADriverVersion


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One cmsRun invocation inside a job."""

    number: int  # 1-based
    name: str
    config_cache_id: str
    cmssw_version: str
    scram_arch: tuple[str, ...]
    global_tag: str
    threads: int
    event_streams: int
    input_step: str | None = None  # None: reads the job's input (or generates)
    input_module: str | None = None
    keep_output: bool = True
    output_modules: tuple[str, ...] = ()  # every module of the PSet, kept or not
    unmerged_lfn_bases: tuple[str, ...] = ()  # theirs, in the same order; empty in specifications of before they were kept
    filter_efficiency: float = 1.0
    seeding: str = "AutomaticSeeding"
    pset_hash: str = ""
    pileup: tuple[Pileup, ...] = ()
    deterministic_pileup: bool = False
    microarch: int = 0  # level of x86-64 that its release needs, as the list of releases says when its jobs are written


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """Generation without input: the numbers a request asks for (docs/splitting.md, Generation)."""

    run: int
    first_event: int
    first_lumi: int
    events: int  # to generate: whole part of RequestNumEvents / FilterEfficiency
    events_per_job: int
    events_per_lumi: int


@dataclass(frozen=True, slots=True)
class SplittingSpec:
    """How input is cut into jobs; only the fields of ``algorithm`` are read."""

    algorithm: SplittingAlgo
    files_per_job: int = 1
    events_per_job: int = 0
    events_per_lumi: int = 0  # above 0: events_per_job is rounded to a multiple of it (chains with input that name it)
    lumis_per_job: int = 8
    halt_job_on_file_boundaries: bool = False
    job_time_limit_seconds: int = 172_800

    def shown(self, generation: GenerationSpec | None) -> dict[str, Any]:
        """The algorithm with the parameters that are set for it; a generation has its own."""
        numbers = {name: getattr(generation or self, name) for name in self.algorithm.parameters}
        return {"algorithm": self.algorithm.value, **{name: number for name, number in numbers.items() if number}}


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The input dataset and what of it is wanted."""

    dataset: str
    include_parents: bool = False
    run_whitelist: tuple[int, ...] = ()
    run_blacklist: tuple[int, ...] = ()
    block_whitelist: tuple[str, ...] = ()
    block_blacklist: tuple[str, ...] = ()
    lumi_list: LumiRanges = field(default_factory=dict)  # empty: everything
    open_seconds: int = 0  # OpenRunningTimeout: how long the dataset may go on growing after its last new block


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """What one processing job asks of a slot."""

    cores: int
    memory_mb: int  # whole job, already inside the memory window (spec 5.2)
    time_per_event_seconds: float
    size_per_event_kb: float  # disk of all tiers together
    gpu: GpuSpec | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Steps that run in one job. The first task does the request's work; every other one is a level of nodes inside the
    same work unit, reading what the jobs of an earlier task left, unmerged, at the unit's site.

    A StepChain or ReReco is one task of all its steps, a TaskChain a tree of tasks of one step each.
    """

    number: int  # 1-based; also the order, a task comes after the one it reads
    name: str
    steps: tuple[str, ...]  # names of StepSpecs, in order
    resources: ResourceSpec
    input_task: str | None = None  # None: the first task
    input_step: str | None = None  # the step of input_task whose module is read
    input_module: str | None = None
    # of later tasks: how what the task before is expected to make is cut; only the number of ``algorithm`` is read
    events_per_job: int = 0  # 0: one file a job
    algorithm: SplittingAlgo = SplittingAlgo.EVENT_AWARE_LUMI_BASED
    lumis_per_job: int = 8
    files_per_job: int = 1
    extra_requirements: str = ""  # its own, in place of the workflow's


@dataclass(frozen=True, slots=True)
class BlockClosing:
    """When the document wants a block of output to take no more (``BlockCloseMax…``); 0: it does not say."""

    max_wait_seconds: int = 0
    max_files: int = 0
    max_events: int = 0
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HarvestSpec:
    """DQM harvesting of the DQMIO outputs of a request that has completed (ADR 0020)."""

    config_cache_id: str
    upload_urls: tuple[str, ...]
    together: bool = False  # all runs into one file, else one for each (DQMHarvestUnit)
    memory_mb: int = 0  # 0: as set for this installation


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """A request, typed: everything planning and rendering need, nothing ReqMgr2-shaped."""

    request_name: str
    campaign: str
    steps: tuple[StepSpec, ...]
    outputs: tuple[OutputSpec, ...]
    resources: ResourceSpec
    splitting: SplittingSpec
    generation: GenerationSpec | None
    input: InputSpec | None
    site_whitelist: tuple[str, ...]
    site_blacklist: tuple[str, ...] = ()
    trust_sitelists: bool = False
    trust_pileup_sitelists: bool = False
    extra_requirements: str = ""  # JobExtraMatchRequirements: a ClassAd expression over the slot, checked by intake
    tasks: tuple[TaskSpec, ...] = ()  # empty: one task of all steps with ``resources``; else ``resources`` are the first task's
    min_merge_bytes: int = 2_147_483_648
    max_merge_bytes: int = 4_294_967_296
    max_merge_events: int = 100_000_000
    block_closing: BlockClosing = BlockClosing()
    harvest: HarvestSpec | None = None
    warnings: tuple[str, ...] = ()  # accepted with these, shown on the request for ever
    request_type: str = ""  # as ReqMgr2 has it; of a request that a former release imported it is not stored


class InputFileSpec(NamedTuple):  # a tuple, as InputFile
    """One input file with what the catalogues say of it. ``locations`` are CMS site names, not RSEs."""

    lfn: str
    size_bytes: int
    events: int
    lumis: LumiRanges
    locations: frozenset[str]
    parents: tuple[str, ...] = ()
    left: tuple[tuple[int, int], ...] | None = None  # 0-based event ranges still to be planned; None: the whole file
    left_lumis: LumiRanges | None = None  # for splitting by lumis: those still to be planned; None: all of ``lumis``
    odd_lumis: tuple[tuple[int, int, int, int], ...] = ()  # ``lumis.odd``
    block: str = ""  # given by ``plan_request``'s list of files only; a running request's files were chosen when they were read

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it was planned by events."""
        return self.left is None or self.left == ((0, max(self.events - 1, 0)),)


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """An input file that no job can be planned for now, and why."""

    lfn: str
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationLeft:
    """Where a later round of a generation goes on: offsets only move forward, ``events`` is what is still missing."""

    first_event: int
    first_lumi: int
    events: int


class JobSpec(NamedTuple):  # a tuple, as InputFile
    """One processing job before it has a place in a work unit."""

    events: int
    sites: frozenset[str]
    generate: Generate | None = None
    files: tuple[InputFile, ...] = ()
    mask: LumiRanges | None = None  # None: everything in the files
    by_lumi: bool = False  # the work is exactly the lumis of ``mask``, in all files that hold them; claims are RUN_LUMIS
    file_lumis: int = 0  # without ``mask``: lumis of what is read, as far as the catalogue knows; later tasks are cut by it


class ClaimSpec(NamedTuple):  # a tuple, as InputFile
    """A range of work that a unit takes from the ledger (one WorkUnitClaim row).

    GENERATED: events ``first..last`` of ``run``, and lumis ``first_lumi..last_lumi``.
    FILE_EVENTS: events ``first..last`` of file ``lfn`` (a file without events claims 0..0).
    RUN_LUMIS: lumis ``first..last`` of ``run``.
    """

    kind: ClaimKind
    first: int
    last: int
    lfn: str = ""
    run: int = 0
    first_lumi: int = 0
    last_lumi: int = 0


class LevelNode(NamedTuple):
    """One job of a later task."""

    events: int  # expected to be in what it reads, rounded up
    reads: tuple[int, ...]  # positions of the upstream nodes whose outputs it reads
    share: Share | None = None  # None: the outputs whole; else ``reads`` is one node


class LevelSpec(NamedTuple):
    """The jobs of one later task inside a work unit."""

    task: int  # TaskSpec.number
    input_task: int  # number of the task whose nodes are read
    nodes: tuple[LevelNode, ...]


@dataclass(frozen=True, slots=True)
class WorkUnitSpec:
    """A work unit: landing -> processing (level by level) -> merge -> cleanup, one ``SUBDAG EXTERNAL``."""

    index: int  # within the DAG
    name: str  # mg_NNNNNN
    jobs: tuple[JobSpec, ...]
    sites: frozenset[str]  # where it may land
    claims: tuple[ClaimSpec, ...]
    events: int
    estimated_output_bytes: dict[str, int]  # dataset -> bytes
    levels: tuple[LevelSpec, ...] = ()  # of later tasks, in their order

    @property
    def processing_nodes(self) -> int:
        """Processing nodes of all tasks."""
        return len(self.jobs) + sum(len(level.nodes) for level in self.levels)


class ExclusionKind(StrEnum):
    """Why no job reads a file; what of it an operator must know of before a request completes without it."""

    UNWANTED = "unwanted"  # the request's own masks and lists leave it out
    LATE = "late"  # it came when all its lumis were done from other files (docs/adr/0007)
    UNUSABLE = "unusable"  # the way the request is split cannot take it
    LOST = "lost"  # it could not be read where it is
    OPERATOR = "operator"  # an operator left it out
    ACCEPTED = "accepted"  # an operator accepted that it is left out
    INHERITED = "inherited"  # it is the business of the request that this one was derived from (docs/adr/0024)
    DERIVED = "derived"  # the request that was derived from this one has taken it over


#: What a request does not miss.
NOT_MISSED = (ExclusionKind.UNWANTED, ExclusionKind.INHERITED, ExclusionKind.DERIVED)


@dataclass(frozen=True, slots=True)
class ExcludedFile:
    """An input file that no job reads, with the reason an operator can read."""

    lfn: str
    reason: str
    kind: ExclusionKind = ExclusionKind.UNUSABLE


@dataclass(frozen=True, slots=True)
class RefusedLumi:
    """A lumi that no job may take, with the reason; nothing else is refused with it."""

    run: int
    lumi: int
    reason: str
    lfns: tuple[str, ...] = ()
    for_lack_of_site: bool = False  # as the files lie now: it may be taken when they have moved


#: What a splitter yields, in order.
PlanItem = JobSpec | ExcludedFile | RefusedLumi


#: Longest run time of a job that is asked for; a job that runs longer is ended.
MAX_WALL_SECONDS = 48 * 3600


@dataclass(frozen=True, slots=True)
class DagLimits:
    """Throttles and retries rendered into the DAG (spec 3.1.2; error-handling 8.2)."""

    max_merge_groups: int = 100
    max_processing: int = 5000  # of the whole workflow; divided among the units that can run at once
    processing_retries: int = 3
    merge_retries: int = 2
    cooloff_seconds: int = 60
    no_cpu_seconds: int = 7200  # how long a job may run before it must have used CPU
    held_seconds: int = 300  # how long one may be on hold by anything but a person, who may want to look at it
    max_starts: int = 5  # how often HTCondor may start one that is evicted each time
    idle_seconds: int = 5 * 86400  # how long one may wait for the site that its unit has landed at
    stage_out_pauses_seconds: tuple[float, ...] = documents.STAGE_OUT_PAUSES


@dataclass(frozen=True, slots=True)
class PileupBlock:
    """One block of a pileup dataset that lies on disk. ``sites`` read it, sorted; files in the order of their names."""

    name: str
    sites: tuple[str, ...]
    events: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PileupDataset:
    """A pileup dataset as it was resolved for one DAG, blocks in the order of their names."""

    dataset: str
    kind: str  # "mc" or "data"
    blocks: tuple[PileupBlock, ...]


@dataclass(frozen=True, slots=True)
class AccountingSpec:
    """To whom HTCondor and CMS's accounting count the jobs; empty: HTCondor's own defaults."""

    group: str = ""
    user: str = ""
    production: bool = False
    io_slots: bool = False  # merge and cleanup jobs ask for such a slot


@dataclass(frozen=True, slots=True)
class DagSpec:
    """Everything that ``dagfiles.render`` needs for one DAG directory."""

    dag_id: str
    workflow_id: str
    instance: str
    round_index: int
    workflow: WorkflowSpec
    units: tuple[WorkUnitSpec, ...]
    limits: DagLimits
    pileup: tuple[PileupDataset, ...] = ()  # of all steps, each dataset once
    accounting: AccountingSpec = AccountingSpec()
    profile: StepProfile = field(default_factory=StepProfile)  # how its steps run inside a slot, at its first submission
    mixed_before: dict[int, int] = field(default_factory=dict)  # task -> events of deterministic pileup that earlier rounds mixed
