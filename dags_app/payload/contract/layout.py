"""Names of files, nodes, schemas and attributes in a DAG directory, each once: for the payload, the planner and WMS2's readers.

``docs/payload-contract.md`` says what is in the files. Changing a name here breaks jobs and DAGs that already run.
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
#: .1: merged files name their pieces of the claim; .2: metrics of each job; .3: the RSE of each file.
MANIFEST_VERSION = f"{MANIFEST_SCHEMA}.3"
JOURNAL_SCHEMA = "wms2.journal/1"
POST_SCHEMA = "wms2.post/1"
FAILURE_SCHEMA = "wms2.failure/1"
RULES_SCHEMA = "wms2.rules/1"
STEP_PROFILE_SCHEMA = "wms2.step_profile/1"
SITE_TASK_SCHEMA, SITE_RESULT_SCHEMA = "wms2.site_task/1", "wms2.site_result/1"
LISTING_TASK_SCHEMA = "wms2.listing_task/1"
HARVEST_TASK_SCHEMA = "wms2.harvest_task/1"

# Rendered by the planner, never changed after; SHA256SUMS has their sums.
OUTER_DAG = "workflow.dag"
INNER_DAG = "group.dag"
DAGMAN_CONFIG = "dagman.config"
UNITS_CONFIG = "units.config"
JOB_FILE = "job.json"
UNIT_FILE = "unit.json"
RULES_FILE = "rules.json"
SANDBOX_FILE = "sandbox.tar.gz"
PAYLOAD = "bin/wms2_payload.pyz"
SUMS = "SHA256SUMS"
#: Submit file of the first task's jobs; further tasks have one each.
PROCESSING_SUBMIT = "proc.sub"

# Written by HTCondor and DAGMan.
OUTER_STATUS = "workflow.dag.status"
INNER_STATUS = "group.dag.status"
JOBSTATE_LOG = "workflow.jobstate.log"
NODES_LOG = "group.dag.nodes.log"
CLUSTER_LOG = "cluster.log"

# Include files: read when a node is submitted or a DAGMan starts, replaced between submissions, so not in SHA256SUMS.
AVOID_INCLUDE = "avoid.inc"
FENCE_INCLUDE = "fence.dag.inc"
LIMITS_INCLUDE, UNITS_LIMITS_INCLUDE = "limits.dag.inc", "units.dag.inc"
SITE_INCLUDE = "site.inc"
#: Where a landing is to look first, and of the whole DAG what that is chosen by: slots by site, none where the pool spreads.
FIRST_INCLUDE, SPREAD_FILE = "first.inc", "spread.json"
MEMORY_INCLUDE = "memory.inc"
#: Of the whole DAG: what it asks for by default, and how its steps run; both replaced with a rescue that knows better.
SIZES_INCLUDE = "sizes.inc"
#: Also of the whole DAG: which file the jobs carry that says who they are.
CREDENTIAL_INCLUDE = "credential.inc"
STEP_PROFILE_FILE = "step_profile.json"
#: Where a request mixes pileup: as it lies at each submission.
PILEUP_FILE = "pileup.json"
#: What they define.
SITE_MACRO = "ELECTED_SITE"
DAG_AVOID_MACRO = "DAG_AVOID"
UNIT_AVOID_MACRO = "UNIT_AVOID"
FIRST_MACRO = "FIRST_SITE"
#: After so long a landing takes any of its sites.
FIRST_SECONDS = 1800
CREDENTIAL_MACRO = "CREDENTIAL_FILES"
MEMORY_MACRO, WALL_MACRO = "MEMORY", "WALL"
#: How many times the expected wall time a job asks for at first; doubled when it was not enough.
WALL_FACTOR = 2

# Left by jobs and by DAGMan's scripts.
MERGE_INPUT_FILE = "merge_input.json"
MANIFEST_FILE = "merge_output.json"
ELECTED_LOG = "elected.log"
SCRIPTS_LOG = "scripts.log"
ORPHANS_FILE = "orphans.jsonl"
FAILURES_FILE = "failures.jsonl"
SUCCEEDED_FILE = "succeeded.fence"
STORED_LOGS_FILE = "kept_logs.jsonl"

# Of a job at a site that is no node of a DAG, in a directory of its own.
SITE_TASK_FILE, SITE_RESULT_FILE, SITE_STDERR = "task.json", "result.json", "site.err"

#: Roles of a unit's jobs. There is one node of each but the second, called like it.
LANDING, PROCESSING, MERGE, CLEANUP = "landing", "processing", "merge", "cleanup"

#: The machine's attribute that names its CMS site; landing.sub has it written into the execute event.
SITE_ATTRIBUTE = "GLIDEIN_CMSSite"
#: Of a job: the sites that its requirements allow, one once a site is elected. Nothing else knows and rewrites it.
JOB_SITE_ATTRIBUTE = "WMS2_Site"
#: What is stamped on every job, and read there.
FENCE_ATTRIBUTE = "WMS2_Fence"
UNIT_ATTRIBUTE = "WMS2_Unit"

#: What hold reasons of the submit files' own begin with, after ``WMS2:``, where the job has waited for this site long enough.
STARTED_TOO_OFTEN, IDLE_TOO_LONG = "started", "idle for"
#: In the ad of a job that never began: it need not wait for its site any longer than this.
IDLE_ATTRIBUTE = "WMS2_IdleSeconds"

#: ``classification.category`` of a ``post.json`` whose attempt ended well.
SUCCESS_CATEGORY = "success"


def pset_path(number: int, step_name: str) -> str:
    """Path of a step's PSet inside the sandbox."""
    return f"psets/step{number}_{step_name}.py"


def task_submit(task: int) -> str:
    """Submit file of a task's jobs; ``task`` counts from 1."""
    return PROCESSING_SUBMIT if task == 1 else f"task{task}.sub"


def rescue_glob(dag_file: str) -> str:
    """Pattern of the rescue files that DAGMan writes beside a DAG file."""
    return f"{dag_file}.rescue[0-9][0-9][0-9]"


def report_name(node: str, attempt: int) -> str:
    """File name of an attempt's report."""
    return f"{node}.{attempt}.report.json"


def logs_name(node: str, attempt: int, job_id: str) -> str:
    """File name of a job's packed logs: attempt numbers repeat after a rescue, and an older job's are not to be overwritten."""
    return f"{node}.{attempt}.{job_id}.logs.tar.gz"


def stderr_name(node: str, attempt: int | str) -> str:
    """File name of what an attempt wrote to its standard error."""
    return f"{node}.{attempt}.err"


def node_input_name(node: str) -> str:
    """File name of what a later task's node reads, written by its PRE script."""
    return f"{node}.input.json"


def post_name(node: str) -> str:
    """File name of the verdict on a node's last attempt."""
    return f"{node}.post.json"


def attempts_name(node: str) -> str:
    """File name of the history of a node's attempts."""
    return f"{node}.attempts.jsonl"


def cooloff_name(node: str) -> str:
    """File name of a node's waiting before a retry; there only while it waits."""
    return f"{node}.cooloff.json"


def utc_now() -> str:
    """The time as the side files write it: UTC, ISO 8601, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
