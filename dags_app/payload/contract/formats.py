"""Names of the side files and their schemas, in one place. ``docs/payload-contract.md`` says what is in them.

Changing a name here breaks whoever reads it: the planner's submit files, WMS2's readers, jobs that already run.
"""

from __future__ import annotations

from datetime import datetime, timezone

JOB_SCHEMA = "wms2.job/1"
UNIT_SCHEMA = "wms2.unit/1"
REPORT_SCHEMA = "wms2.report/1"
PILEUP_SCHEMA = "wms2.pileup/1"
NODE_INPUT_SCHEMA = "wms2.node_input/1"
MERGE_INPUT_SCHEMA = "wms2.merge_input/1"
MANIFEST_SCHEMA = "wms2.manifest/1"
MANIFEST_VERSION = f"{MANIFEST_SCHEMA}.1"  # merged files name their pieces of the claim
JOURNAL_SCHEMA = "wms2.journal/1"
POST_SCHEMA = "wms2.post/1"

JOB_FILE = "job.json"
UNIT_FILE = "unit.json"
SANDBOX_FILE = "sandbox.tar.gz"
PILEUP_FILE = "pileup.json"
MERGE_INPUT_FILE = "merge_input.json"
MANIFEST_FILE = "merge_output.json"

#: The machine's attribute that names its CMS site; landing.sub has it written into the execute event.
SITE_ATTRIBUTE = "GLIDEIN_CMSSite"

#: ``classification.category`` of a ``post.json`` whose attempt ended well.
SUCCESS_CATEGORY = "success"


def report_name(node: str, attempt: int) -> str:
    """File name of an attempt's report."""
    return f"{node}.{attempt}.report.json"


def logs_name(node: str, attempt: int) -> str:
    """File name of an attempt's packed logs."""
    return f"{node}.{attempt}.logs.tar.gz"


def node_input_name(node: str) -> str:
    """File name of what a later task's node reads."""
    return f"{node}.input.json"


def post_name(node: str) -> str:
    """File name of the verdict on a node's last attempt."""
    return f"{node}.post.json"


def attempts_name(node: str) -> str:
    """File name of the history of a node's attempts."""
    return f"{node}.attempts.jsonl"


def utc_now() -> str:
    """The time as the side files write it: UTC, ISO 8601, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
