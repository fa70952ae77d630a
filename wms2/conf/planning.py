"""Settings of planning, and of what is tried again after failures."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeInt, model_validator

from wms2.conf.base import Base


class Planning(Base):
    """How work is cut, and how often tried."""

    # --- Planning
    jobs_per_work_unit: int = Field(8, ge=1, le=10_000)
    """Processing jobs that are merged together in the first round"""
    block_target_bytes: int = Field(10**12, ge=10**6, le=10**16)
    """A processing block takes work units until the next one would pass this size"""
    block_max_files: int = Field(500, ge=1)
    """A processing block with so many files takes no more and is registered in DBS. Of this and the document's
    `BlockCloseMaxFiles` the smaller counts; `BlockCloseMaxSize` counts so beside `block_target_bytes`."""
    max_nodes_per_dag: int = Field(50_000, ge=4)
    """Jobs of one DAG, of all roles; more work waits for a further round."""
    max_work_units_per_dag: int = Field(5_000, ge=1)
    """Work units of one DAG."""
    default_memory_per_core_mb: int = Field(2000, ge=100, le=10**6)
    """Memory per core that jobs are given at least, in MB; of requests read from now on"""
    max_memory_per_core_mb: int = Field(3000, ge=100, le=10**6)
    """Memory per core that jobs may ask for at most, in MB; of requests read from now on"""
    max_wall_seconds: int = 48 * 3600
    """Longest run time of a job that is asked for; a job that runs longer is ended."""
    adaptive_default: bool = False
    """Whether a request runs in rounds that are sized by what was measured when its import does not say."""
    work_units_per_round: int = Field(100, ge=1, le=5_000)
    """Work units of a round of an adaptive request, after its first"""
    target_wall_seconds: int = Field(8 * 3600, ge=60)
    """How long a job is to take where a round's splitting is sized by what was measured."""
    memory_margin: float = Field(0.20, ge=0, le=2)
    """Added to the memory that was measured, as a share of it"""
    overcommit_max: float = Field(1.0, ge=1, le=4)
    """Threads of a step's processes together, as a multiple of the job's cores; 1: no more than cores."""
    sizing_min_jobs: int = Field(8, ge=1)
    """A step that fewer jobs have measured keeps the request's hints."""
    input_reread_seconds: float = Field(600.0, gt=0)
    """Pause between two readings of an input dataset that may still grow (`OpenRunningTimeout`)."""
    wait_for_full_units: bool = True
    """While an input dataset may still grow (`OpenRunningTimeout`), jobs that do not fill a work unit wait for more, so
    that merged files are not small. They are planned when the input is closed, or by *Flush*."""
    unreadable_apart_seconds: float = Field(4 * 3600, gt=0)
    """An input file that could not be read at the only site with it is tried again after this, and left out if it cannot be
    read then either; where two sites agree, at once."""
    max_excluded_fraction: float = Field(0.0, ge=0, le=1)
    """The share of its wanted input files that a request may complete without, when they could not be read or not be split;
    above it the request is held (`excluded`). A request may have its own."""
    generation_excess_factor: float = Field(2.0, ge=1.0)
    """Events planned in all, lost ones and extensions included, at most so many times the number to generate that follows
    from the document."""
    pass_fractions: tuple[str, ...] = ("*=1", "DQMIO=0")
    """Share of the events that a document asks for which is enough in DBS, as `TIER=share,...`; `*` is every tier that is
    not named, 1 without it. A generation that has fewer is extended; with input, so much of what the accepted manifests
    declare has to be there. DQMIO holds no events. A request may have its own (`pass_fraction` of a release)."""
    dag_max_merge_groups: int = Field(100, ge=1, le=1000)
    """Work units of one DAG that run at the same time at most"""
    dag_status_interval_seconds: int = 2
    """How often the outer DAGMan of a DAG writes its status file and its job ad."""
    dag_log_scan_interval_seconds: int = Field(1, ge=1)
    """How often DAGMan reads its jobs' event log; each node costs a few of these."""
    retry_processing: int = Field(3, ge=0, le=100)
    """Retries of a processing node; of DAGs planned from now on"""
    retry_merge: int = Field(2, ge=0, le=100)
    """Retries of a merge node; of DAGs planned from now on"""
    cooloff_base_seconds: int = Field(60, ge=1, le=86_400)
    """Pause before the first retry of a node, doubled with each; of DAGs planned from now on"""

    # --- Errors
    error_hold_threshold: float = Field(0.20, gt=0, le=1)
    """Share of a round's work units, above 0 and at most 1, that hold the request when they fail"""
    error_max_rescue_attempts: int = Field(3, ge=0, le=100)
    """Rescues after failures that a round gets, counted from the last release"""
    error_same_units: int = Field(5, ge=0)
    """So many work units that fail with one error, while nothing else ends, abort their DAG; 0: never."""
    stage_out_pauses: tuple[NonNegativeInt, ...] = (60, 300, 600)
    """Seconds between the tries of a job to stage out a file to one volume, separated by commas, before it goes to the
    next, and of an upload to a DQM server; of DAGs planned from now on. A worker node may have a variable of this name of
    its own, with spaces."""
    unit_unbegun_seconds: int = Field(6 * 3600, ge=0)
    """A work unit of which no job has begun at its site so long after it landed, while others of its DAG began elsewhere,
    lands at another site, once in each submission (alert `site_starts_nothing`); 0: never."""
    site_ban_duration_days: float = Field(7.0, gt=0, le=3650)
    """How long a site is banned, when no duration is given"""
    site_ban_promotion_threshold: int = Field(3, ge=1, le=10_000)
    """So many requests that ban a site ban it for all"""
    site_ban_min_failures: int = Field(3, ge=1, le=10**6)
    """Failures for a site's sake that ban it for a request"""
    site_ban_failure_ratio: float = Field(0.50, ge=0, lt=1)
    """Share of the attempts there that they exceed"""
    max_versions: int = Field(5, ge=1)
    """A request may be restarted until so many versions of it exist."""
    superseded_grace_days: float = Field(30.0, ge=0)
    """Outputs that a completed new version has replaced are taken back after so many days, unless the request says at once;
    0: only by hand."""

    @model_validator(mode="after")
    def _fractions_make_sense(self) -> Self:
        try:
            sensible = all(0 <= share <= 1 for share in self.pass_fraction_of.values())
        except ValueError:
            sensible = False
        if not sensible:
            raise ValueError("WMS2_PASS_FRACTIONS: tier=share, each share from 0 to 1, separated by commas")
        return self

    @property
    def pass_fraction_of(self) -> dict[str, float]:
        """``pass_fractions`` by tier; ``*`` is there always."""
        pairs = (each.partition("=") for each in self.pass_fractions)
        return {"*": 1.0} | {tier.strip(): float(share) for tier, _, share in pairs}
