"""Names of files, nodes and job attributes in a DAG directory: one constant each.

The payload reads and writes under the same names (``docs/payload-contract.md``); changing one here without the payload
breaks running DAGs.
"""

from __future__ import annotations

OUTER_DAG = "workflow.dag"
INNER_DAG = "group.dag"
DAGMAN_CONFIG = "dagman.config"
OUTER_STATUS = "workflow.dag.status"
INNER_STATUS = "group.dag.status"
JOBSTATE_LOG = "workflow.jobstate.log"
NODES_LOG = "group.dag.nodes.log"
CLUSTER_LOG = "cluster.log"

JOB_DOCUMENT = "job.json"
UNIT_DOCUMENT = "unit.json"
PILEUP_DOCUMENT = "pileup.json"
MERGE_INPUT = "merge_input.json"
MERGE_OUTPUT = "merge_output.json"
SANDBOX = "sandbox.tar.gz"
PAYLOAD = "bin/wms2_payload.pyz"
RULES = "rules.json"
SUMS = "SHA256SUMS"

#: Mutable after rendering, read when a node is submitted or a DAGMan starts; not in ``SHA256SUMS``.
AVOID_INC = "avoid.inc"
FENCE_INC = "fence.dag.inc"
#: Made at run time in a unit's directory by the payload's scripts.
SITE_INC = "site.inc"
MEMORY_INC = "memory.inc"

#: Submit file of the first task's jobs; further tasks have one each.
PROCESSING_SUBMIT = "proc.sub"

LANDING, MERGE, CLEANUP = "landing", "merge", "cleanup"

#: The machine attribute that names the CMS site of a slot.
SITE_ATTRIBUTE = "GLIDEIN_CMSSite"


def pset_path(number: int, step_name: str) -> str:
    """Path of a step's PSet inside the sandbox."""
    return f"psets/step{number}_{step_name}.py"


def task_submit(task: int) -> str:
    """Submit file of a task's jobs; ``task`` counts from 1."""
    return PROCESSING_SUBMIT if task == 1 else f"task{task}.sub"


def node_input(node: str) -> str:
    """What a later task's node reads, written by its PRE script in the unit's directory."""
    return f"{node}.input.json"


def rescue_glob(dag_file: str) -> str:
    """Pattern of the rescue files that DAGMan writes beside a DAG file."""
    return f"{dag_file}.rescue[0-9][0-9][0-9]"
