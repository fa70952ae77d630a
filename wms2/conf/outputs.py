"""Settings of outputs: leftovers, validation, DQM harvesting, registration; how long rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from wms2.conf.base import Base

#: A transaction of the database whose process does nothing for so long is broken off.
DATABASE_IDLE_SECONDS = 60


class Outputs(Base):
    """What becomes of outputs and of old rows."""

    # --- Leftovers at sites
    cleaner_enabled: bool = True
    """Whether files that are no longer needed are removed at sites (runbook, Leftovers at sites). Off: no job is submitted
    for it, and those in the queue are removed."""
    cleaner_off_sites: tuple[str, ...] = ()
    """Sites at which nothing is removed, separated by commas."""

    # --- Validation
    storage_checks_enabled: bool = True
    """Whether the files of registered blocks are compared with the storage itself, by jobs at its site (runbook,
    Validation). Off: DBS and Rucio alone decide, and each block's evidence says so."""
    storage_check_off_sites: tuple[str, ...] = ()
    """Sites whose storage is not checked, separated by commas; the blocks' evidence says so."""
    storage_checksum_fraction: float = Field(0.01, ge=0, le=1)
    """Share of these files whose Adler-32 is asked for too; where a storage does not report it, the files are
    read whole. Which files is decided by their names. The others are compared by size."""

    # --- DQM harvesting
    harvest_enabled: bool = True
    """Whether DQM files of completed requests that ask for it are harvested (runbook, DQM harvesting). Off: no job is
    submitted for it, and those in the queue are removed; what is to be harvested waits."""
    dqm_upload_url: str = Field("", pattern=r"^(https?://.*[^/])?$")
    """A DQM server that gets all uploads, whatever requests name; for installations of tests."""
    dqm_upload_allowed_urls: tuple[str, ...] = ("https://cmsweb.cern.ch/dqm", "https://cmsweb-testbed.cern.ch/dqm")
    """DQM servers that requests may name (`DQMUploadUrl`), with all that is below these addresses: jobs show them who they
    are. Separated by commas."""

    # --- Retention
    keep_events_days: float = Field(90.0, ge=0)
    """Events of the feed go when they are older than so many days and their request has been at an end for as long; 0 keeps
    them for ever, here and below. Readers of the feed must not be further behind."""
    keep_history_days: float = Field(365.0, ge=0)
    """The same for the history of DAGs, and for the samples of failures with the ends of their logs. By age alone: changes
    of schedds' health and queues, and systemic alerts, bans and reconciliations that have ended."""
    keep_audit_days: float = Field(3 * 365.0, ge=0)
    """Entries of the audit that are older than so many days go, whatever they are about."""
    archive_after_days: float = Field(7.0, ge=0)
    """A request that has been COMPLETED for so many days becomes ARCHIVED, once nothing is owed and its DAG directories are
    packed: the packs are moved to `archive_root`, and read from there. 0: never."""
    archive_root: Path | None = None
    """Directory of the packs of archived requests, on any file system that all workers and web servers see; below
    `state_dir` (`archive`) without it."""

    # --- Registration
    effect_backoff_seconds: tuple[int, ...] = (60, 300, 1800, 7200, 14400, 28800)
    """Pauses after the first, second, … failure, separated by commas; the last one repeats."""
    effect_gather_seconds: float = Field(30.0, ge=0)
    """Files of a block that are done within this time are registered and protected together; a block that is whole waits
    for nothing. 0: at once."""
    effect_lease_seconds: float = Field(60.0, gt=0)
    """A registration whose worker has not renewed its claim for so long is made again. At least 60, the time after which the
    database breaks an idle transaction off; only the environment `test` may have less."""
    source_rule_cleanup: str = Field("expire", pattern=r"^(keep|expire)$")
    """What becomes of the rules that protect files where they were made: `expire` ends them when something else keeps the
    files, `keep` never."""
    source_rule_days: float = Field(7.0, ge=0)
    """So many days after the later of a tape rule's OK, of any account, and the block's validation they end."""
    source_rule_days_without_tape: float = Field(0.0, ge=0)
    """So many days after its validation they end for a block that a rule on disk keeps, and none on tape; 0: never. They
    never end by days alone: some other rule has to keep every file."""
    output_placement: str = Field("", pattern=r"^(|msoutput|wms2)$")
    """Who places outputs on tape and disk: `msoutput`, WMCore's, once requests are closed out or announced; WMS2 makes no
    such rule and keeps its source rules until a tape rule of any account is OK over all files; `wms2`, by the placements.
    Empty: `msoutput` while `reqmgr2_follow` is set, else `wms2`."""
    tape_rse_expression: str = "rse_type=TAPE&cms_type=real&wmcore_output_tape=True"
    """Rucio expression of the tape RSEs that one is chosen from for each dataset."""
    rucio_project: str = Field("", pattern=r"^(|Production|RelVal|Test)$")
    """Metadata `project` of new containers and blocks: `Production`, `RelVal` or `Test`. Empty: RelVal for a request whose
    SubRequestType says so, else Production, and Test when the environment is not production."""
    reconcile_hours: float = Field(24.0, ge=0)
    """From one comparison of an output dataset with what DBS and Rucio hold to the next, and from one check of our rules
    to the next; 0: only when an operator asks."""
    datasets_valid_at: str = Field("completion", pattern=r"^(completion|announcement)$")
    """When datasets of requests that came from ReqMgr2 become VALID: at `completion`, by WMS2; or at `announcement`, when
    they are announced there, as for WMCore's; WMS2 leaves them PRODUCTION then. Others: at completion."""

    @model_validator(mode="after")
    def _claims_outlast_idle_transactions(self) -> Self:
        """A block's tape rule could else be claimed while a paused transaction still records what it follows (ADR 0015)."""
        if self.effect_lease_seconds < DATABASE_IDLE_SECONDS and self.environment != "test":
            raise ValueError(
                f"WMS2_EFFECT_LEASE_SECONDS: at least {DATABASE_IDLE_SECONDS}, the seconds after which the database ends an idle"
                " transaction; with less, a request could miss the end of a registration and wait until it is looked at again"
            )
        return self

    def dqm_problem(self, urls: Sequence[str]) -> str:
        """Why a document may not name these DQM servers, which jobs show their credential; empty when it may."""
        known = tuple(f"{url.rstrip('/')}/" for url in self.dqm_upload_allowed_urls)
        strange = [url for url in urls if not self.dqm_upload_url and not f"{url}/".startswith(known)]
        return f"{', '.join(strange)}: WMS2 uploads to {', '.join(known) or 'none'} and below only" if strange else ""
