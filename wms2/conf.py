"""Typed, frozen settings of WMS2. Each field is read once from ``WMS2_<FIELD>``; operators' run-time changes are Limit rows.

Units stand in the names. ``load()`` refuses wrong values by name; nothing falls back to a fake or to a guess.
Sources: spec 4.2, 4.4, 4.7, 5.2, 15; error-handling 8.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Self, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from wms2.errors import ConfigurationError


class JobCredential(StrEnum):
    """What jobs carry to prove who they are: nothing, an X.509 proxy, or a bearer token."""

    NONE, PROXY, TOKEN = "none", "proxy", "token"


class Conf(BaseModel):
    """All settings. Required ones have no default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # --- identity and places
    instance: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="stamped on every job and database row set")
    environment: str = Field(pattern=r"^(demo|test|production)$")
    state_dir: Path
    submit_root: Path = Field(description="DAG directories; on the schedd's file system, never below /tmp")

    # --- services
    reqmgr2_url: str = Field(pattern=r"^https?://")
    team: str = Field("", pattern=r"^[A-Za-z0-9_.-]{0,100}$", description="ours in ReqMgr2; documents of others are refused")
    other_teams: bool = Field(False, description="documents of other teams may be imported by hand, as in the demo")
    reqmgr2_follow: bool = Field(False, description="takes our team's staged requests, and follows what others do to ours")
    reqmgr2_report: bool = Field(False, description="tells ReqMgr2 where requests stand that came from there")
    reqmgr2_take_staging: bool = Field(
        False, description="takes our team's requests whose input is placed before MSMonitor stages them"
    )
    reqmgr2_poll_seconds: float = Field(60.0, ge=0.5)
    wmstats_url: str = Field("", pattern=r"^(https?://.*)?$", description="empty: what MSUnmerged leaves alone is not looked at")
    configcache_url: str = Field("", description="replaces the document's ConfigCacheUrl when set")
    configcache_allowed_urls: tuple[str, ...] = Field((), description="empty: /couchdb of ReqMgr2's host")
    dbs_reader_url: str = Field(pattern=r"^https?://")
    dbs_writer_url: str = Field(pattern=r"^https?://")
    dbs_tiers_with_digits: bool = Field(False, description="whether that DBS takes datasets of tiers like L1NANO")
    cric_url: str = Field(pattern=r"^https?://")
    site_status_url: str = Field("", pattern=r"^(https?://.*)?$", description="empty: the status of sites is operators' alone")
    mspileup_url: str = Field(
        "", pattern=r"^(https?://.*[^/])?$", description="says where pileup is kept; empty: Rucio alone does"
    )
    rucio_home: Path
    rucio_account: str
    rucio_scope: str = "cms"
    x509_cert: str = ""
    x509_key: str = ""
    service_token: str = ""
    ca_path: str = ""
    releases_map: Path | None = Field(None, description="CMS's list of releases; without it no processor is asked for")
    job_credential: JobCredential = JobCredential.NONE
    job_credential_path: str = Field("", pattern=r"^(/[A-Za-z0-9_.@+/-]+)?$")
    job_credential_margin_seconds: int = Field(7200, ge=0, description="no DAG is submitted whose jobs' credential ends sooner")
    job_credential_stop_seconds: int = Field(900, ge=300, description="DAGs are stopped when their jobs' credential ends so soon")
    credential_alert_seconds: int = Field(48 * 3600, ge=0, description="a credential that ends sooner needs an operator")
    schedd_name: str
    collector: str
    condor_token_dir: str = ""
    accounting_group: str = Field("", pattern=r"^[A-Za-z0-9_.-]*$", description="HTCondor's accounting group of all jobs")
    accounting_group_user: str = Field("", pattern=r"^[A-Za-z0-9_.@-]*$", description="its user; the jobs' owner when empty")
    io_slots: bool = Field(False, description="merge and cleanup jobs ask for an I/O slot, which only CMS's pilots have")
    flower_url: str = Field("", pattern=r"^(https?://.*)?$", description="the pages link to it when set")
    service_timeout_seconds: float = Field(30.0, gt=0)
    database_lock_seconds: float = Field(10.0, ge=0.1)
    database_idle_seconds: float = Field(60.0, ge=1, description="a transaction that does nothing for longer is broken off")
    database_silent_seconds: float = Field(30.0, ge=6)
    max_clock_skew_seconds: float = Field(
        30.0, gt=0, description="a process whose clock differs more from the database's acts not"
    )
    submit_timeout_seconds: float = Field(60.0, gt=0)

    # --- signing in
    sign_in_failures_per_name: int = Field(5, ge=1, le=1000)
    sign_in_failures_per_address: int = Field(20, ge=1, le=100_000)
    sign_in_window_seconds: float = Field(300.0, ge=1, le=86400)
    proxies_in_front: int = Field(0, ge=0, le=10)
    feed_readers: int = Field(
        8, ge=0, le=1000, description="readers of the event feed that a web process lets wait, a thread each"
    )

    # --- rates of each identity over REST (ADR 0028); 0: no limit
    rate_limit_window_seconds: float = Field(10.0, ge=1, le=3600)
    rate_limit_submit: int = Field(50, ge=0, description="Imports of one user within the window; 0, as for the others: no limit")
    rate_limit_read: int = Field(100, ge=0, description="Reads, pages included")
    rate_limit_act: int = Field(20, ge=0, description="Verbs: stop, abort, hold, release and all others")
    rate_limit_streams: int = Field(10, ge=0, description="Streams of events that are begun")
    web_threads: int = Field(4, ge=1, description="of each web process; their share that is busy is its load")

    # --- life cycle (spec 4.2)
    cycle_seconds: float = Field(60.0, gt=0, description="pause between two looks at every schedd")
    poll_seconds: float = Field(2.0, gt=0, le=10, description="pause between two looks at what has moved and what is due")
    sweep_seconds: float = Field(3600.0, gt=0, description="a request that nothing wakes is looked at after this all the same")
    lease_seconds: float = Field(30.0, gt=0, description="a leader or an evaluation that is silent for longer is replaced")
    worker_heartbeat_seconds: float = Field(10.0, gt=0, description="a worker that is silent three times as long counts as dead")
    worker_missing_seconds: float = Field(300.0, ge=0, description="a pool without a worker for longer alerts")
    timeout_submitted_seconds: int = 3600
    timeout_queued_seconds: int = Field(
        7 * 86400,
        ge=60,
        le=10 * 365 * 86400,
        description="A request that is QUEUED for longer raises an alert, and goes on waiting",
    )
    timeout_planning_seconds: int = 3600
    timeout_active_seconds: int = Field(
        30 * 86400,
        ge=60,
        le=10 * 365 * 86400,
        description="A request that is ACTIVE for longer, since its DAG's first job began, raises an alert, and goes on",
    )
    timeout_dispatch_seconds: int = Field(2 * 86400, ge=60, description="from the submission of a DAG to the first of its jobs")
    timeout_stopping_seconds: int = 3600
    timeout_resubmitting_seconds: int = 600
    timeout_validating_seconds: int = 86_400
    timeout_validated_seconds: int = 7 * 86_400
    timeout_removing_seconds: int = 3 * 86_400
    timeout_cleaning_seconds: int = 86_400
    retry_after_failure_seconds: int = Field(
        60, ge=1, le=86_400, description="First pause of a request whose planning or submission failed; doubles"
    )
    retry_after_failure_max_seconds: int = Field(3600, ge=1, le=7 * 86_400, description="Longest such pause")
    submit_unknown_grace_seconds: float = Field(
        120.0, ge=0, description="'not in queue and history' counts only so long after the submission's own time limit"
    )
    schedd_suspicion_seconds: int = 900
    schedd_max_duty_cycle: float = Field(0.98, gt=0, le=1, description="a schedd above it is busy")
    schedd_stalled_seconds: float = Field(
        4 * 3600.0, gt=0, description="a schedd where jobs run and none has ended for so long is degraded"
    )
    systemic_window_seconds: float = Field(
        120.0, gt=0, description="more than half of the schedds or sites that turn bad within this are no fault of theirs"
    )

    # --- levels of the service (ADR 0028); at its limit a signal strains it, at five times that it closes for new work
    overload_evaluations_seconds: float = Field(
        600.0, gt=0, description="how long a request that is due may wait to be looked at"
    )
    overload_effects_seconds: float = Field(3600.0, gt=0, description="how long a registration that is due may wait to be tried")
    overload_database_seconds: float = Field(0.2, gt=0, description="what a question to the database that costs nothing may take")
    trouble_load_per_cpu: float = Field(
        4.0, ge=0, description="load per CPU of the leader's host from which on it judges others more patiently; 0: never"
    )

    stray_look_seconds: float = Field(600.0, gt=0, description="pause between two looks for jobs that no live DAG knows")

    # --- admission (spec 4.4)
    max_active_dags: int = Field(300, ge=1, le=100_000, description="DAGs that may be live at the same time, in all")
    max_dagman_slots_per_schedd: int = Field(3100, ge=2, description="START_SCHEDULER_UNIVERSE of the schedd")
    canary_seconds: float = Field(3600.0, ge=1, description="a canary DAG that has not ended by then failed its schedd's checks")
    submit_root_free_mb: int = Field(1024, ge=0, description="a schedd whose submit directory has less left is not enabled")
    idle_job_budget: int = Field(
        1_000_000, ge=1, le=100_000_000, description="Jobs that may wait in the pool, over all DAGs; each DAG has a share"
    )
    admission_high_watermark: float = Field(
        1.0, gt=0, le=1, description="Nobody starts once this part of the idle-job budget waits, down to the low watermark"
    )
    admission_low_watermark: float = Field(
        0.9, gt=0, le=1, description="Requests start again when less than this part of the idle-job budget waits"
    )
    admission_aging_per_hour: float = Field(
        200.0, ge=0, le=1_000_000, description="Points by which a queued request's priority rises for each hour that it waits"
    )

    # --- planning
    jobs_per_work_unit: int = Field(8, ge=1, le=10_000, description="Processing jobs that are merged together in the first round")
    block_target_bytes: int = Field(
        10**12, ge=10**6, le=10**16, description="A processing block takes work units until the next one would pass this size"
    )
    block_max_files: int = Field(500, ge=1)
    block_max_events: int = Field(25_000_000, ge=1)
    block_max_lumis: int = Field(100_000, ge=1)
    block_max_wait_seconds: float = Field(66_400.0, gt=0, description="since a block's first file")
    max_nodes_per_dag: int = Field(50_000, ge=4)
    max_work_units_per_dag: int = Field(5_000, ge=1)
    default_memory_per_core_mb: int = Field(
        2000, ge=100, le=10**6, description="Memory per core that jobs are given at least, in MB; of requests read from now on"
    )
    max_memory_per_core_mb: int = Field(
        3000, ge=100, le=10**6, description="Memory per core that jobs may ask for at most, in MB; of requests read from now on"
    )
    max_wall_seconds: int = 48 * 3600
    adaptive_default: bool = False
    first_round_units: int = Field(1, ge=1, le=5_000)
    work_units_per_round: int = Field(
        100, ge=1, le=5_000, description="Work units of a round of an adaptive request, after its first"
    )
    target_wall_seconds: int = Field(8 * 3600, ge=60)
    memory_margin: float = Field(0.20, ge=0, le=2, description="Added to the memory that was measured, as a share of it")
    min_request_cpus: int = Field(1, ge=1, le=1024)
    split_below: float = Field(0.5, ge=0, le=1)
    overcommit_max: float = Field(1.0, ge=1, le=4)
    sizing_min_jobs: int = Field(8, ge=1)
    max_jobs_per_work_unit: int = Field(200, ge=1, le=10_000)
    pileup_cache_seconds: int = Field(6 * 3600, ge=0, description="0: read before every planning")
    pileup_min_fraction: float = Field(0.1, gt=0.0, le=1.0)
    input_reread_seconds: float = Field(600.0, gt=0, description="how often DBS is asked for files of a dataset that may grow")
    wait_for_full_units: bool = Field(True, description="what fills no work unit waits while the input may grow")
    input_locations_seconds: float = Field(3600.0, ge=0, description="older locations of input files are read again")
    input_missing_alert_seconds: float = Field(86400.0, gt=0, description="files that wait longer for a location alert")
    unreadable_apart_seconds: float = Field(
        4 * 3600, gt=0, description="a file that its only site fails to read again so much later is left out"
    )
    max_excluded_fraction: float = Field(
        0.0, ge=0, le=1, description="share of the wanted input files that may be left out before the request is held"
    )
    generation_excess_factor: float = Field(2.0, ge=1.0)
    pass_fractions: tuple[str, ...] = Field(
        ("*=1", "DQMIO=0"), description="share of the events asked for that is enough in DBS, by tier; * is every other tier"
    )
    extend_max_failure_rate: float = Field(
        0.5, ge=0, le=1, description="share of the last round's work units that failed; above it nothing is extended"
    )
    extend_max_queued: int = Field(1000, ge=0, description="queued requests; above it nothing is extended")
    dag_max_merge_groups: int = Field(100, ge=1, le=1000, description="Work units of one DAG that run at the same time at most")
    dag_max_processing: int = 5000
    dag_status_interval_seconds: int = 2
    dag_log_scan_interval_seconds: int = Field(1, ge=1)
    retry_processing: int = Field(3, ge=0, le=100, description="Retries of a processing node; of DAGs planned from now on")
    retry_merge: int = Field(2, ge=0, le=100, description="Retries of a merge node; of DAGs planned from now on")
    cooloff_base_seconds: int = Field(
        60, ge=1, le=86_400, description="Pause before the first retry of a node, doubled with each; of DAGs planned from now on"
    )

    # --- errors (error-handling 8.1)
    error_hold_threshold: float = Field(
        0.20,
        gt=0,
        le=1,
        description="Share of a round's work units, above 0 and at most 1, that hold the request when they fail",
    )
    error_max_rescue_attempts: int = Field(
        3, ge=0, le=100, description="Rescues after failures that a round gets, counted from the last release"
    )
    error_same_units: int = Field(5, ge=0, description="work units that fail alike, and nothing else, abort their DAG; 0: never")
    alert_failed_attempts: int = Field(
        10, ge=1, description="failed attempts of a DAG in which nothing has done well, that alert"
    )
    job_no_cpu_seconds: int = Field(7200, ge=10, description="a job that runs so long without using CPU is ended")
    stage_out_pauses: tuple[NonNegativeInt, ...] = Field(
        (60, 300, 600), description="Seconds between the tries of a file at one volume; of DAGs planned from now on"
    )
    job_held_seconds: int = Field(300, ge=0, description="a job on hold, but not by a person, is removed after this")
    job_max_starts: int = Field(5, ge=1, description="a job that was started so often, and evicted each time, is removed")
    job_idle_seconds: int = Field(5 * 86400, ge=60, description="a job that waits so long for its unit's site is removed")
    unit_unbegun_seconds: int = Field(
        6 * 3600, ge=0, description="Units without a job that began at their site land elsewhere if others began; 0: never"
    )
    site_ban_duration_days: float = Field(
        7.0, gt=0, le=3650, description="How long a site is banned, when nobody says for how long"
    )
    site_ban_promotion_threshold: int = Field(3, ge=1, le=10_000, description="So many requests that ban a site ban it for all")
    site_ban_min_failures: int = Field(3, ge=1, le=10**6, description="Failures for a site's sake that ban it for a request")
    site_ban_failure_ratio: float = Field(0.50, ge=0, lt=1, description="Share of the attempts there that they exceed")
    max_versions: int = Field(5, ge=1, description="a request may be restarted until this many versions of it exist")
    superseded_grace_days: float = Field(30.0, ge=0, description="replaced outputs are taken back after this; 0: only by hand")

    # --- unmerged and rejected files (ADR 0022)
    cleaner_enabled: bool = Field(True, description="remove files that nobody needs any more from sites' storage")
    cleaner_off_sites: tuple[str, ...] = Field((), description="sites at which nothing is removed")
    cleaner_grace_days: float = Field(3.0, ge=0, description="since the end of a round, until its units' leftovers are removed")
    cleaner_ended_grace_days: float = Field(
        14.0, ge=0, description="the same since a request failed or was aborted, unless it is to be cleaned up at once"
    )
    removal_tries: int = Field(
        3, ge=1, le=1000, description="After so many tries a request completes without what cannot be removed"
    )
    site_job_timeout_seconds: int = Field(86_400, ge=60, description="a job at a site is given up after this, waiting included")
    site_job_run_seconds: int = Field(3600, ge=10, description="a job at a site that has begun ends after this")

    # --- validation (ADR 0019)
    storage_checks_enabled: bool = Field(True, description="compare registered files with the storage itself")
    storage_check_off_sites: tuple[str, ...] = Field((), description="sites whose storage is not looked at")
    storage_checksum_fraction: float = Field(0.01, ge=0, le=1, description="of the files that are looked at, those read whole")

    # --- DQM harvesting (ADR 0020)
    harvest_enabled: bool = Field(True, description="harvest the DQM files of completed requests that ask for it")
    dqm_upload_url: str = Field("", pattern=r"^(https?://.*[^/])?$", description="replaces the document's DQMUploadUrl when set")
    dqm_upload_allowed_urls: tuple[str, ...] = Field(
        ("https://cmsweb.cern.ch/dqm", "https://cmsweb-testbed.cern.ch/dqm"), description="and what is below them"
    )
    harvest_memory_mb: int = Field(3000, ge=100, description="of a harvesting job, where its request has no HarvestingMemory")
    harvest_run_seconds: int = Field(43_200, ge=60, description="a harvesting job that has begun ends after this")
    harvest_max_jobs: int = Field(50, ge=1, description="harvesting jobs in the queues at once")
    harvest_max_attempts: int = Field(
        8, ge=1, le=1000, description="Failed attempts of one harvesting, after which it waits for an operator"
    )

    # --- retention (ADR 0029); 0: for ever
    keep_events_days: float = Field(90.0, ge=0, description="events of the feed, once their request is at an end for so long")
    keep_history_days: float = Field(
        365.0, ge=0, description="the same for the history of DAGs and samples of failures; that of schedds and bans by age"
    )
    keep_answers_hours: float = Field(24.0, gt=0, description="answers to calls with an Idempotency-Key")
    keep_audit_days: float = Field(3 * 365.0, ge=0, description="entries of the audit, by age alone")
    pack_dags_after_days: float = Field(
        7.0, ge=0, description="from a request's end until its DAG directories are packed; 0: never"
    )
    archive_after_days: float = Field(
        7.0, ge=0, description="from a request's completion until its packs are moved and it is archived; 0: never"
    )
    archive_root: Path | None = Field(None, description="where they are moved; below the state directory without it")
    kept_logs_per_unit: int = Field(20, ge=1, le=1000, description="attempts whose packed logs a work unit keeps")
    kept_logs_per_dag: int = Field(1000, ge=1, le=10_000, description="the same for a DAG")
    kept_logs_mb_per_dag: int = Field(2000, ge=1, le=10**6, description="what they may take in all, in MB")
    kept_logs_of_successes: float = Field(0.0, ge=0, le=1, description="share of the nodes that did well whose logs are kept")

    # --- outputs (spec 4.7)
    effect_backoff_seconds: tuple[int, ...] = (60, 300, 1800, 7200, 14400, 28800)
    effect_max_pause_seconds: int = Field(
        7 * 86400, ge=1, le=7 * 86400, description="No pause between two tries of an effect is longer, whatever the schedule says"
    )
    effect_max_retry_seconds: int = Field(
        3 * 86400, ge=1, le=365 * 86_400, description="Since its first failure, until an effect waits for an operator"
    )
    effect_lease_seconds: float = Field(60.0, gt=0, description="a claim that was not renewed for so long is another worker's")
    effect_gather_seconds: float = Field(
        30.0, ge=0, description="files of a block that are done within this are registered and protected together"
    )
    output_placement: str = Field(
        "", pattern=r"^(|msoutput|wms2)$", description="who makes rules on tape and disk; empty: MSOutput while we follow ReqMgr2"
    )
    tape_rse_expression: str = "rse_type=TAPE&cms_type=real&wmcore_output_tape=True"
    rule_approval_check_seconds: float = Field(
        3600.0, gt=0, description="pause between two looks at a rule that waits for approval"
    )
    source_rule_cleanup: str = Field(
        "expire", pattern=r"^(keep|expire)$", description="what becomes of source rules of blocks that are validated"
    )
    source_rule_days: float = Field(7.0, ge=0, description="after the later of the tape rule's OK and the block's validation")
    source_rule_days_without_tape: float = Field(
        0.0, ge=0, description="after the block's validation where a rule on disk alone keeps its files; 0: never"
    )
    source_block_rule: bool = Field(False, description="one source rule replaces those of a block's files that lie at one RSE")
    rucio_project: str = Field(
        "", pattern=r"^(|Production|RelVal|Test)$", description="empty: by the request and the environment"
    )
    rule_activity: str = "Production Output"
    reconcile_hours: float = Field(
        24.0, ge=0, description="from one comparison of a dataset with DBS and Rucio to the next; 0: only by hand"
    )
    reconcile_days: float = Field(
        30.0, gt=0, description="a dataset whose blocks have not changed for so long is compared no more"
    )
    integrity_reminder_hours: float = Field(
        24.0, ge=0, description="from one reminder of a site's open integrity cases to the next; 0: never"
    )
    primary_ds_type: str = "mc"
    physics_group: str = "DataOps"
    datasets_valid_at: str = Field(
        "completion", pattern=r"^(completion|announcement)$", description="when datasets of requests from ReqMgr2 become VALID"
    )

    @model_validator(mode="after")
    def _credentials_make_sense(self) -> Self:
        if (self.job_credential is not JobCredential.NONE) != bool(self.job_credential_path):
            raise ValueError("WMS2_JOB_CREDENTIAL_PATH: it is set when WMS2_JOB_CREDENTIAL is proxy or token, and only then")
        if self.job_credential_stop_seconds > self.job_credential_margin_seconds:
            raise ValueError("WMS2_JOB_CREDENTIAL_STOP_SECONDS: what is submitted would be stopped at once; at most the margin")
        services = "reqmgr2 wmstats dbs_reader dbs_writer cric site_status mspileup"
        for name in (f"{service}_url" for service in services.split()):
            if self.service_token and getattr(self, name) and not getattr(self, name).startswith("https://"):
                raise ValueError(f"WMS2_SERVICE_TOKEN: it would be sent in the clear to WMS2_{name.upper()}, which is not https")
        return self

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
    def msoutput_places(self) -> bool:
        """Whether WMCore's MSOutput makes the rules on tape and disk; then WMS2 makes none."""
        return (self.output_placement or ("msoutput" if self.reqmgr2_follow else "wms2")) == "msoutput"

    @property
    def pass_fraction_of(self) -> dict[str, float]:
        """``pass_fractions`` by tier; ``*`` is there always."""
        pairs = (each.partition("=") for each in self.pass_fractions)
        return {"*": 1.0} | {tier.strip(): float(share) for tier, _, share in pairs}

    def dqm_problem(self, urls: Sequence[str]) -> str:
        """Why a document may not name these DQM servers, which jobs would tell who they are; empty when it may."""
        known = tuple(f"{url.rstrip('/')}/" for url in self.dqm_upload_allowed_urls)
        strange = [url for url in urls if not self.dqm_upload_url and not f"{url}/".startswith(known)]
        return f"{', '.join(strange)}: WMS2 uploads to {', '.join(known) or 'none'} and below only" if strange else ""

    @property
    def configcaches_allowed(self) -> tuple[str, ...]:
        """ConfigCaches that documents may name."""
        host = urlsplit(self.reqmgr2_url)
        return self.configcache_allowed_urls or (f"{host.scheme}://{host.netloc}/couchdb",)

    @model_validator(mode="after")
    def _somebodys_team(self) -> Self:
        """Whoever follows ReqMgr2 takes requests away from everybody else there."""
        if self.reqmgr2_follow and not self.team:
            raise ValueError("WMS2_TEAM: name the team of ReqMgr2 to take requests of, or do not set WMS2_REQMGR2_FOLLOW")
        return self

    @model_validator(mode="after")
    def _code_comes_encrypted(self) -> Self:
        """PSets are code that runs at all sites: in production none is taken from a connection that others can write into."""
        safe = ("https",) if self.environment == "production" else ("https", "http")
        named = [("URL", self.configcache_url)] if self.configcache_url else []
        for name, url in [*named, *(("ALLOWED_URLS", url) for url in self.configcaches_allowed)]:
            try:
                known = urlsplit(url).port != 0 and urlsplit(url).scheme in safe
            except ValueError:
                known = False
            if not known:
                raise ValueError(f"WMS2_CONFIGCACHE_{name}: ConfigCache has to be asked by {' or '.join(safe)}, not at {url!r}")
        return self


def _variable(place: tuple[int | str, ...]) -> str:
    """Which variable a problem is about; empty for one of several together, which names them itself."""
    return f"WMS2_{'_'.join(str(part) for part in place).upper()}: " if place else ""


def from_environment(environment: Mapping[str, str]) -> Conf:
    """Read the settings from ``WMS2_*`` variables. Raises ConfigurationError: naming each missing or wrong variable."""
    values: dict[str, object] = {}
    for name in Conf.model_fields:
        raw = environment.get(f"WMS2_{name.upper()}")
        if raw is None or raw == "":
            continue
        is_list = get_origin(Conf.model_fields[name].annotation) is tuple
        values[name] = tuple(part.strip() for part in raw.split(",")) if is_list else raw
    try:
        return Conf.model_validate(values)
    except ValidationError as error:
        lines = [f"{_variable(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigurationError("WMS2 is not configured; set in the environment:\n  " + "\n  ".join(lines)) from error


@cache
def conf() -> Conf:
    """The settings of this process, read once from the process environment."""
    return from_environment(os.environ)
