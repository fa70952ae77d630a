"""Failures that no POST script judges: of the landing job, and of the scripts before a node. Written to the DAG's failure log.

DAGMan repeats these by itself, so nothing is decided here; without a line in the log a unit would fail without a reason.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..contract import codes, failure_log, files, scripts
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.layout import FAILURES_FILE, LANDING, MERGE, PROCESSING, RULES_FILE, SCRIPTS_LOG, utc_now
from ..contract.rules import INFRASTRUCTURE, RETRY, TRANSIENT, Evidence, first_match, load_rules
from .classify import Classification

#: Job id of a script that runs before there is a job.
NO_JOB = "-"

_LOG_LINES = 20


def log_landing(unit: Path, job_id: str, return_value: int, site: str) -> None:
    """The landing job of a unit did not end well; it may not have begun at all. A job is logged once."""
    mine = {"unit": unit.name, "node": LANDING, "job_id": job_id, "fence": scripts.submission_fence(unit)}
    if job_id.startswith("-"):
        evidence = Evidence(codes.NOT_SUBMITTED, f"no landing job was submitted (DAGMan says {return_value}): see dagman.out")
    else:
        if any(mine.items() <= line.items() for line in failure_log.read_failures(unit.parent / FAILURES_FILE)):
            return
        evidence = Evidence(codes.LANDING_FAILED, f"the landing job ended with {return_value}", site=site)
    _append(unit, LANDING, LANDING, job_id, evidence, INFRASTRUCTURE, None)


def log_script(unit: Path, command: str, node: str, error: PayloadError) -> None:
    """A script before a node, or the one that elects the site, could not do its work."""
    evidence = Evidence(error.code, f"{command}: {error.message}", step=command)
    rule = None
    # a script that hangs is reported from another thread, where no search has a limit
    if threading.current_thread() is threading.main_thread():
        with suppress(PayloadError):  # the failure is logged all the same, without a rule
            rule = first_match(load_rules(unit.parent / RULES_FILE).rules, evidence)
    role = LANDING if node == LANDING else MERGE if node == MERGE else PROCESSING
    _append(unit, node, role, NO_JOB, evidence, rule.category if rule else TRANSIENT, rule.name if rule else None)


def _append(unit: Path, node: str, role: str, job_id: str, evidence: Evidence, category: str, rule: str | None) -> None:
    reason = f"exit code {evidence.code}: {evidence.message}"
    verdict = Classification(category, True, RETRY, codes.POST_RETRY, reason, evidence.code, rule)
    record: dict[str, Any] = {
        "timestamp": utc_now(),
        "unit": unit.name,
        "node_name": node,
        "role": role,
        "attempt": 0,
        "job_id": job_id,
        "fence": scripts.submission_fence(unit),
        "final": False,  # these scripts do not know how often DAGMan will repeat it
        "job": {"site": evidence.site},
        "classification": {**to_json(verdict), "step": evidence.step},
        "log_tail": files.tail_text(unit / SCRIPTS_LOG, _LOG_LINES),
    }
    failure_log.append_failure(unit.parent, record, evidence.message)
