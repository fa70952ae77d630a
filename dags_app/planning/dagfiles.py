"""Renders a ``DagSpec`` to the text of its DAG directory. Pure: no input or output (``writer.py`` writes it).

The form of the files is what HTCondor 23.9 and 25 both run (docs/design/htcondor.md, Form of a DAG): one outer DAG with a
``SUBDAG EXTERNAL`` per work unit, relative paths throughout, and scripts and submissions with the unit's directory as the
current one. Spec 4.5 and Appendix C; error-handling 2 and 8.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dags_app.payload.contract import layout
from dags_app.payload.contract.codes import POST_ABORT_DAG, POST_CALL_AGAIN, POST_PERMANENT
from dags_app.planning.cms_ads import NodeRole, plain, site_list
from dags_app.planning.documents import job_document, unit_document
from dags_app.planning.levels import FIRST_TASK, all_tasks, last_nodes, nodes_of, upstream_names
from dags_app.planning.pileup import MixedEvents, pileup_document
from dags_app.planning.sizing import (
    CLEANUP_REQUEST,
    SlotRequest,
    level_input_kb,
    merge_request,
    processing_request,
    sizes_of,
    task_resources,
)
from dags_app.planning.specs import DagSpec, JobSpec, LevelNode, ResourceSpec
from dags_app.planning.submitfiles import landing_submit, node_submit
from wms2.runtime.credentials import Credential

#: What an inner DAG returns when a node asked to abort everything; the outer DAG aborts on it. DAGMan exits only with 0..2:
#: any other code makes the schedd start it again.
INNER_ABORT = 2
OUTER_ABORT = 1

_MERGE_GROUP, _PROCESSING = "MergeGroup", "Processing"

#: How often the outer DAGMan writes its status file and its job ad, and every DAGMan looks at its log.
_STATUS_SECONDS, _SCAN_SECONDS = 2, 1
#: How often an inner DAGMan writes its status file, which pages show, and its job ad, whose done and failed nodes are shown: each
#: update is a transaction of the schedd (ADR 0004).
_INNER_STATUS_SECONDS, _INNER_AD_SECONDS = 5, 60
_LANDING_RETRIES, _CLEANUP_RETRIES = 3, 1
#: Of nodes that are ready those that became so last are submitted first: unmerged files wait for them.
_LATER_TASKS_FIRST = "DAGMAN_SUBMIT_DEPTH_FIRST = True\n"


class RenderedFile(NamedTuple):  # a tuple: there are two for each unit
    """One file of a DAG directory; ``mutable`` ones change between submissions and are not in ``SHA256SUMS``."""

    path: str
    text: str
    mutable: bool = False


def render(spec: DagSpec) -> Iterator[RenderedFile]:
    """Every text file of the directory, in a fixed order; the sandbox and the payload are the writer's.

    Raises:
        ValueError: a name has characters that cannot stand in a DAG file, or there is no unit.
    """
    if not spec.units:
        raise ValueError(f"DAG {spec.dag_id} has no work units")
    yield RenderedFile(layout.OUTER_DAG, outer_dag(spec))
    yield RenderedFile(layout.DAGMAN_CONFIG, dagman_config(_STATUS_SECONDS))
    yield RenderedFile(layout.UNITS_CONFIG, dagman_config(_INNER_AD_SECONDS) + _LATER_TASKS_FIRST)
    yield RenderedFile("landing.sub", landing_submit(spec))
    for task in all_tasks(spec.workflow):
        yield RenderedFile(layout.task_submit(task.number), node_submit(spec, NodeRole.PROCESSING, task.number))
    yield RenderedFile("merge.sub", node_submit(spec, NodeRole.MERGE))
    yield RenderedFile("cleanup.sub", node_submit(spec, NodeRole.CLEANUP))
    yield RenderedFile(layout.JOB_FILE, job_document(spec))
    if spec.pileup:
        yield RenderedFile(layout.PILEUP_FILE, pileup_document(spec.pileup), mutable=True)
    yield RenderedFile(layout.AVOID_INCLUDE, avoid_inc(frozenset()), mutable=True)
    yield RenderedFile(layout.CREDENTIAL_INCLUDE, credential_inc(None), mutable=True)
    yield RenderedFile(layout.FENCE_INCLUDE, fence_inc(0), mutable=True)
    yield RenderedFile(layout.SPREAD_FILE, "{}\n", mutable=True)
    for name, text in sizes_of(spec.workflow, spec.profile).files().items():
        yield RenderedFile(name, text, mutable=True)
    at_once = min(len(spec.units), spec.limits.max_merge_groups)
    yield RenderedFile(layout.LIMITS_INCLUDE, limits_inc(at_once), mutable=True)
    yield RenderedFile(layout.UNITS_LIMITS_INCLUDE, units_limits_inc(spec.limits.max_processing // at_once), mutable=True)
    mixed = MixedEvents(spec)
    for unit, group in zip(spec.units, group_dags(spec), strict=True):
        yield RenderedFile(f"{unit.name}/{layout.INNER_DAG}", group)
        yield RenderedFile(f"{unit.name}/{layout.UNIT_FILE}", unit_document(unit, mixed.before(unit)))


def outer_dag(spec: DagSpec) -> str:
    """``workflow.dag``.

    Units start in their order, which is that of their blocks: ``PRIORITY`` of a unit would be added to ``JobPrio`` of its jobs.
    Scripts of a node with DIR run there (measured on both versions), so ``env -C ..``
    takes ``reelect`` back to the DAG's directory.
    """
    lines = [
        f"# Round {spec.round_index} of {spec.workflow.request_name}: {len(spec.units)} work units. Immutable ({layout.SUMS}).",
        *_dag_stamps(spec),
        f"CONFIG {layout.DAGMAN_CONFIG}",
        f"NODE_STATUS_FILE {layout.OUTER_STATUS} {_STATUS_SECONDS} ALWAYS-UPDATE",
        f"JOBSTATE_LOG {layout.JOBSTATE_LOG}",
    ]
    for unit in spec.units:
        name = unit.name
        lines += [
            f"SUBDAG EXTERNAL {name} {layout.INNER_DAG} DIR {name}",
            f"SCRIPT PRE {name} /usr/bin/env -C .. {layout.PAYLOAD} reelect {name} $RETRY",
            f"RETRY {name} 1",
            f"ABORT-DAG-ON {name} {INNER_ABORT} RETURN {OUTER_ABORT}",
            f"CATEGORY {name} {_MERGE_GROUP}",
        ]
    lines += [f"INCLUDE {layout.LIMITS_INCLUDE}", f"INCLUDE {layout.FENCE_INCLUDE}"]
    return _text(lines)


def group_dags(spec: DagSpec) -> Iterator[str]:
    """``group.dag`` of each unit, in their order. What they have in common is rendered once."""
    template = _group_template(spec)
    nodes = {task.number: _node_template(spec, task.number) for task in all_tasks(spec.workflow)}
    most = spec.workflow.max_merge_bytes
    for unit in spec.units:
        names, processing = nodes_of(unit), []
        levels: list[tuple[int, Sequence[JobSpec | LevelNode]]] = [(level.task, level.nodes) for level in unit.levels]
        inputs = level_input_kb(spec.workflow, unit)
        for task, jobs in ((FIRST_TASK, unit.jobs), *levels):
            resources, before, after = nodes[task]
            for name, job, input_kb in zip(names[task], jobs, inputs.get(task) or [0] * len(jobs), strict=True):
                slot = processing_request(resources, job.events, input_kb=input_kb)
                processing.append(name.join(before) + _vars(slot) + name.join(after))
        between = (f"PARENT {' '.join(reads)} CHILD {name}\n" for level in unit.levels for name, reads in upstream_names(level))
        yield template % {
            "unit": unit.name,
            "place": unit.index,
            "jobs": unit.processing_nodes,
            "events": unit.events,
            "sites": site_list(unit.sites),
            "processing": "\n".join(processing),
            "merge": _vars(merge_request(unit, max_merge_bytes=most)),
            "first": " ".join(names[FIRST_TASK]),
            "between": "".join(between),
            "last": " ".join(last_nodes(unit)),
        }


def _group_template(spec: DagSpec) -> str:
    """Landing, then processing level by level, then merge, then cleanup; ``%(...)s`` where units differ (names have no %)."""
    limits = spec.limits
    lines = [
        "# Work unit %(unit)s: %(jobs)s jobs, %(events)s events.",
        *_dag_stamps(spec),
        f'SET_JOB_ATTR {layout.UNIT_ATTRIBUTE} = "%(unit)s"',
        f"CONFIG ../{layout.UNITS_CONFIG}",
        f"NODE_STATUS_FILE {layout.INNER_STATUS} {_INNER_STATUS_SECONDS} ALWAYS-UPDATE",
        f"JOB {layout.LANDING} ../landing.sub",
        f'VARS {layout.LANDING} sites="%(sites)s"',
        f"SCRIPT POST {layout.LANDING} ../{layout.PAYLOAD} elect {layout.NODES_LOG} $JOBID $RETURN",
        f"RETRY {layout.LANDING} {_LANDING_RETRIES}",
        "%(processing)s",
        f"JOB {layout.MERGE} ../merge.sub",
        f"VARS {layout.MERGE} %(merge)s",
        f"SCRIPT PRE {layout.MERGE} ../{layout.PAYLOAD} collect",
        *_guarded(layout.MERGE, limits.merge_retries, limits.cooloff_seconds),
        f"JOB {layout.CLEANUP} ../cleanup.sub",
        f"VARS {layout.CLEANUP} {_vars(CLEANUP_REQUEST)}",
        # Files left behind are the unmerged-file cleaner's; they never fail a unit whose merged output is in place.
        f"SCRIPT POST {layout.CLEANUP} /bin/true",
        f"RETRY {layout.CLEANUP} {_CLEANUP_RETRIES}",
        f"PARENT {layout.LANDING} CHILD %(first)s",
        f"%(between)sPARENT %(last)s CHILD {layout.MERGE}",
        f"PARENT {layout.MERGE} CHILD {layout.CLEANUP}",
        f"INCLUDE ../{layout.UNITS_LIMITS_INCLUDE}",
        'VARS ALL_NODES wms2_unit="%(unit)s" wms2_place="%(place)s"',
        f"INCLUDE ../{layout.FENCE_INCLUDE}",
    ]
    return _text(lines)


def _node_template(spec: DagSpec, task: int) -> tuple[ResourceSpec, list[str], list[str]]:
    """What a job of a task asks for, and its text before and after that, cut where the node's name stands.

    One of a later task begins with a script that lists what its upstream nodes left.
    """
    limits, name = spec.limits, "%"
    after = [*_guarded(name, limits.processing_retries, limits.cooloff_seconds), f"CATEGORY {name} {_PROCESSING}"]
    if task != FIRST_TASK:
        after = [f"SCRIPT PRE {name} ../{layout.PAYLOAD} gather {name}", *after]
    before = f"JOB {name} ../{layout.task_submit(task)}\nVARS {name} "
    return task_resources(spec.workflow, task), before.split(name), "\n".join(["", *after]).split(name)


def dagman_config(ad_seconds: int) -> str:
    """How often a DAGMan looks at its log and writes its job ad. An inner one has a file of its own in place of the outer's."""
    return f"DAGMAN_USER_LOG_SCAN_INTERVAL = {_SCAN_SECONDS}\nDAGMAN_QUEUE_UPDATE_INTERVAL = {ad_seconds}\n"


def fence_inc(fence: int) -> str:
    """``fence.dag.inc``: stamps everything that a DAGMan started from now on submits."""
    return f'VARS ALL_NODES My.{layout.FENCE_ATTRIBUTE}="{int(fence)}"\n'


def limits_inc(units: int) -> str:
    """``limits.dag.inc``: how many units a DAGMan started from now on runs at once, also in a rescue."""
    return f"MAXJOBS {_MERGE_GROUP} {max(int(units), 1)}\n"


def units_limits_inc(jobs: int) -> str:
    """``units.dag.inc``: processing jobs of one unit. A category's limit holds for one DAGMan: the workflow's is divided."""
    return f"MAXJOBS {_PROCESSING} {max(int(jobs), 1)}\n"


def avoid_inc(sites: frozenset[str]) -> str:
    """``avoid.inc`` of the DAG: sites where no unit may land from now on."""
    return f"{layout.DAG_AVOID_MACRO} = {site_list(sites)}\n"


def credential_inc(carried: Credential | None) -> str:
    """``credential.inc``: the file by which jobs that are submitted from now on say who they are.

    HTCondor names a proxy to the job by X509_USER_PROXY and brings it renewed ones; a token is another input file, which each
    job gets as it is at its start, and which stage-out commands find by BEARER_TOKEN_FILE.
    """
    if carried is None:
        return f"{layout.CREDENTIAL_MACRO} =\n"
    path = plain(carried.path, "path of the jobs' credential")
    if not carried.is_token:
        return f"{layout.CREDENTIAL_MACRO} =\nx509userproxy = {path}\n"
    name = path.rpartition("/")[2]
    return f'{layout.CREDENTIAL_MACRO} = , {path}\nenvironment = "BEARER_TOKEN_FILE=$$(CondorScratchDir)/{name}"\n'


def _dag_stamps(spec: DagSpec) -> list[str]:
    """SET_JOB_ATTR reaches the DAGMan job itself (and only when it stands in the DAG file proper, not in an INCLUDE)."""
    return [
        f'SET_JOB_ATTR WMS2_Instance = "{plain(spec.instance, "instance")}"',
        f'SET_JOB_ATTR WMS2_Request = "{plain(spec.workflow.request_name, "request name")}"',
        f'SET_JOB_ATTR WMS2_DagID = "{plain(spec.dag_id, "DAG id")}"',
    ]


def _guarded(name: str, retries: int, cooloff_seconds: int) -> list[str]:
    """POST script with its cool-off, retries and the two codes that stop them (error-handling 2.2, 2.5)."""
    post = f"../{layout.PAYLOAD} post $JOB $RETURN $RETRY $MAX_RETRIES $JOBID"
    return [
        f"SCRIPT DEFER {POST_CALL_AGAIN} {cooloff_seconds} POST {name} {post}",
        f"RETRY {name} {retries} UNLESS-EXIT {POST_PERMANENT}",
        f"ABORT-DAG-ON {name} {POST_ABORT_DAG} RETURN {INNER_ABORT}",
    ]


def _vars(slot: SlotRequest) -> str:
    return f'disk_kb="{slot.disk_kb}" wall_minutes="{slot.wall_minutes}"'


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
