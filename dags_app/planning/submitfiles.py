"""The submit files of a DAG, one per role (processing: one per task), shared by all its work units.

They are read when a node is submitted, with the unit's directory as the current one: ``site.inc``, ``avoid.inc`` and
``memory.inc`` are the unit's, ``../`` is the DAG's directory, with ``sizes.inc`` and ``credential.inc``. What differs between
nodes comes by ``VARS``: ``wms2_unit`` and ``wms2_place`` (all), ``sites`` (landing), ``disk_kb`` and ``wall_minutes`` (the
others).
Measured on HTCondor 23.9 and 25, with direct submission and with condor_submit.
"""

from __future__ import annotations

from dataclasses import dataclass

from dags_app.payload.contract import layout
from dags_app.planning.cms_ads import TOOL_LINES, UNMONITORED, NodeRole, cms_lines, plain, platform_lines, platform_requirement
from dags_app.planning.gpus import gpu_lines
from dags_app.planning.levels import FIRST_TASK, all_tasks
from dags_app.planning.sizing import CLEANUP_MEMORY_MB, MIN_WALL_MINUTES, memory_macro, task_resources
from dags_app.planning.specs import MAX_WALL_SECONDS, AccountingSpec, DagLimits, DagSpec, StepSpec

#: Requirements rest on an attribute of our own: ``DESIRED_Sites`` is for frontends, and job routers of CMS's schedds rewrite it.
_AT_OUR_SITE = f"stringListMember(TARGET.{layout.SITE_ATTRIBUTE}, MY.{layout.JOB_SITE_ATTRIBUTE})"
_NOT_AVOIDED = f"!stringListMember(TARGET.{layout.SITE_ATTRIBUTE}, MY.WMS2_Avoid)"
#: A landing looks at one site first, where WMS2 spreads them; a site without a free slot keeps it for a while only.
_FIRST_THERE = (
    f'(MY.WMS2_First == "" || TARGET.{layout.SITE_ATTRIBUTE} == MY.WMS2_First || time() - QDate > {layout.FIRST_SECONDS})'
)
#: HoldReasonCode of a hold by a person (1) and by ``periodic_hold`` (3); JobStatus.
_BY_A_PERSON, _BY_PERIODIC_HOLD = 1, 3
_IDLE, _RUNNING, _HELD = 1, 2, 5
#: A job that uses less than this part of one core over its whole life so far does nothing.
_CPU_SHARE = 0.01
_RUN_SECONDS = "(time() - JobCurrentStartDate)"
_CPU_SECONDS = "((RemoteUserCpu ?: 0) + (RemoteSysCpu ?: 0))"
#: The wall time that a job asks for, and at whose end the payload ends it: several times the expected one, since processors
#: differ and hints are wrong. The shortest that is asked for has such a margin already.
_WALL_FACTOR = f"$({layout.WALL_MACRO}_$(JOB):ifThenElse($(wall_minutes) > {MIN_WALL_MINUTES}, {layout.WALL_FACTOR}, 1))"
_WALL_LINES = f"""\
asked_minutes = min({{{_WALL_FACTOR} * $(wall_minutes), {MAX_WALL_SECONDS // 60}}})
My.MaxWallTimeMins = $INT(asked_minutes)
"""


@dataclass(frozen=True, slots=True)
class SiteSlot:
    """What a site job asks of its slot. ``steps``: whose releases it runs."""

    minutes: int
    memory_mb: int = CLEANUP_MEMORY_MB
    disk_kb: int = 100 * 1024
    role: NodeRole = NodeRole.CLEANUP
    steps: tuple[StepSpec, ...] = ()


def landing_submit(spec: DagSpec) -> str:
    """The landing job: runs nothing, lets HTCondor pick the site, and has the site written into its execute event. Without files
    to transfer it carries no credential: a proxy would have to be delegated, which pools may not do (docs/design/htcondor.md).

    It asks for what narrows the choice of a site for any job of the unit: the GPU with the most memory that a task requires, and
    the requester's own requirements.
    """
    steps = spec.workflow.steps
    gpus = [gpu for task in all_tasks(spec.workflow) if (gpu := task.resources.gpu) is not None and gpu.required]
    return f"""\
universe = vanilla
executable = /bin/true
transfer_executable = False
should_transfer_files = NO
request_cpus = 1
request_memory = 1
request_disk = 1024
{gpu_lines(max(gpus, key=lambda gpu: gpu.memory_mb, default=None))}log = {layout.CLUSTER_LOG}
notification = never
ulog_execute_attrs = {layout.SITE_ATTRIBUTE}
include : ../{layout.AVOID_INCLUDE}
include : {layout.AVOID_INCLUDE}
include : {layout.FIRST_INCLUDE}
{_sites("$(sites)")}\
{_order_lines(goes_on=False)}My.WMS2_First = "$({layout.FIRST_MACRO})"
My.WMS2_Avoid = "$({layout.DAG_AVOID_MACRO}),$({layout.UNIT_AVOID_MACRO})"
My.MaxWallTimeMins = {MIN_WALL_MINUTES}
{platform_lines(spec.workflow.steps)}{cms_lines(spec, NodeRole.LANDING)}{_stamps(spec, "landing")}\
{watchdog_lines(MAX_WALL_SECONDS, spec.limits)}\
requirements = {_AT_OUR_SITE}{platform_requirement(steps)} && {_NOT_AVOIDED} && {_FIRST_THERE}{_extra(spec)}
queue
"""


def node_submit(spec: DagSpec, role: NodeRole, task: int = FIRST_TASK) -> str:
    """A job that runs the payload at the elected site: a processing job of one task, a unit's merge, or its cleanup.

    There is no ``transfer_output_files``: one that is listed and missing would put the job on hold. ``MEMORY_<node>`` in
    ``memory.inc`` replaces the default, also after a rescue, when $(RETRY) starts at 0 again; that of a processing job may be
    another with each submission of the DAG (``sizes.inc``). A merge or a cleanup takes what any step of the workflow wrote, and
    runs where all of them do; a processing job of a later task is given the list of files that its upstream nodes left.
    """
    workflow, steps, command = spec.workflow, spec.workflow.steps, role.lower()
    inputs = [layout.UNIT_FILE, layout.MERGE_INPUT_FILE]
    # a merge runs on one core, with the largest memory per core of all tasks' jobs
    per_core = max(1, *(task.resources.memory_mb // task.resources.cores for task in all_tasks(workflow)))
    memory = str(CLEANUP_MEMORY_MB if role is NodeRole.CLEANUP else per_core)
    cores, devices, extra, goes_on = 1, "", "", role is not NodeRole.PROCESSING or task != FIRST_TASK
    if role is NodeRole.CLEANUP:  # it checks the manifest before it removes what was merged
        inputs.append(layout.MANIFEST_FILE)
    elif role is NodeRole.PROCESSING:
        resources, command, memory = task_resources(workflow, task), "job", f"$({memory_macro(task)})"
        names = next(each.steps for each in all_tasks(workflow) if each.number == task)
        steps = tuple(step for step in steps if step.name in names)
        cores, devices, extra = resources.cores, gpu_lines(resources.gpu), _extra(spec, task)
        inputs = [f"../{layout.STEP_PROFILE_FILE}", f"../{layout.SANDBOX_FILE}", layout.UNIT_FILE]
        inputs += [f"../{layout.PILEUP_FILE}"] if spec.pileup else []
        inputs += [layout.node_input_name("$(JOB)")] if task != FIRST_TASK else []
    return f"""\
universe = vanilla
executable = ../{layout.PAYLOAD}
arguments = "{command} --node $(JOB) --attempt $(RETRY)"
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
include : ../{layout.CREDENTIAL_INCLUDE}
transfer_input_files = {", ".join((f"../{layout.JOB_FILE}", *inputs))}$({layout.CREDENTIAL_MACRO})
request_cpus = {cores}
include : ../{layout.SIZES_INCLUDE}
include : {layout.MEMORY_INCLUDE}
request_memory = $(MEMORY_$(JOB):{memory})
request_disk = $(disk_kb)
My.OriginalCpus = {cores}
My.OriginalMemory = {memory}
My.OriginalMaxWallTimeMins = $(wall_minutes)
{devices}My.WantDelayedUpdates = True
output = $(JOB).$(RETRY).out
error = {layout.stderr_name("$(JOB)", "$(RETRY)")}
log = {layout.CLUSTER_LOG}
notification = never
ulog_execute_attrs = {layout.SITE_ATTRIBUTE}
include : {layout.SITE_INCLUDE}
{_sites(f"$({layout.SITE_MACRO})")}\
{_order_lines(goes_on=goes_on)}{_WALL_LINES}\
{platform_lines(steps)}{cms_lines(spec, role, task)}{_stamps(spec, role.lower())}\
{watchdog_lines(MAX_WALL_SECONDS, spec.limits, pinned=True)}\
requirements = {_AT_OUR_SITE}{platform_requirement(steps)}{extra}
queue
"""


#: Above every node of a DAG (its request's priority): requests wait for these few jobs, and at a site that is never idle nothing
#: below would ever start.
_SITE_JOB_PRIORITY = 2_000_000_000


def site_job_submit(site: str, slot: SiteSlot, *, accounting: AccountingSpec) -> str:
    """A job at a site that is no node of a DAG, without ``queue``; stamps, what a DAG's ``credential.inc`` would say, and all
    else that identifies it come with it."""
    who = (("accounting_group", accounting.group), ("accounting_group_user", accounting.user))
    return f"""\
universe = vanilla
executable = {layout.PAYLOAD.rpartition("/")[2]}
arguments = "site --node site --attempt 0"
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_input_files = {layout.SITE_TASK_FILE}$({layout.CREDENTIAL_MACRO})
request_cpus = 1
request_memory = {slot.memory_mb}
request_disk = {slot.disk_kb}
output = site.out
error = {layout.SITE_STDERR}
log = {layout.CLUSTER_LOG}
notification = never
priority = {_SITE_JOB_PRIORITY}
{_sites(plain(site, "site"))}\
My.MaxWallTimeMins = {slot.minutes}
My.CMS_JobType = "{slot.role}"
My.CMS_Type = "{UNMONITORED}"
{TOOL_LINES}\
My.{layout.UNIT_ATTRIBUTE} = "site"
My.{layout.FENCE_ATTRIBUTE} = 0
My.WMS2_Role = "site"
{platform_lines(slot.steps)}{"".join(f"{name} = {plain(value, name)}{chr(10)}" for name, value in who if value)}\
{watchdog_lines(slot.minutes * 60, DagLimits(no_cpu_seconds=slot.minutes * 60))}\
requirements = {_AT_OUR_SITE}{platform_requirement(slot.steps)}
"""


def _sites(sites: str) -> str:
    """Where a job may run, for its own requirements and for those who match and count it."""
    return "".join(f'My.{name} = "{sites}"\n' for name in ("DESIRED_Sites", "ExtDESIRED_Sites", layout.JOB_SITE_ATTRIBUTE))


def _extra(spec: DagSpec, task: int | None = None) -> str:
    """The requester's own expression, behind what WMS2 asks for itself: of one task, or the one that all of them have. A unit's
    tasks may need slots of several kinds, so its landing asks for no more. Intake has checked that it is one whole expression."""
    workflow = spec.workflow
    tasks = [each for each in all_tasks(workflow) if task in (None, each.number)]
    found = {each.extra_requirements or workflow.extra_requirements for each in tasks}
    expression = found.pop() if len(found) == 1 else ""
    return f" && ({expression})" if expression else ""


def _order_lines(*, goes_on: bool) -> str:
    """What HTCondor compares among jobs of one ``JobPrio``, which is the request's priority alone: what ``goes_on`` with a unit
    that has begun is before what begins others, else all units end together at the very end; then the units' order."""
    return f"place = -1 * $(wms2_place)\nMy.PostJobPrio1 = {int(goes_on)}\nMy.PostJobPrio2 = $INT(place)\n"


def watchdog_lines(max_wall_seconds: int, limits: DagLimits, *, pinned: bool = False) -> str:
    """Jobs that never end: lines by which HTCondor itself catches them.

    A job that runs too long, runs without using its CPU, or is evicted again and again, is put on hold with a reason of
    ``WMS2:``; so is one that is pinned to a site and waits there for days, or has never begun and is to wait no longer. A job
    that is on hold, for this or any other reason but a person's, is removed, so that DAGMan goes on and the POST script sees why.
    The failure rules know these reasons (``dags_app/data/failure_rules.json``): changing a text here needs the rule changed with
    it. Only attributes that the schedd and the shadow keep themselves, or that WMS2 edits, are read.

    Args:
        max_wall_seconds: longest run of any job.
        pinned: whether the job may run at one site only. One that may run elsewhere gains nothing by another submission.
    """
    found = [
        (f"JobStatus == {_RUNNING} && {_RUN_SECONDS} > {int(max_wall_seconds)}", f"ran longer than {int(max_wall_seconds)} s"),
        (
            f"JobStatus == {_RUNNING} && {_RUN_SECONDS} > {int(limits.no_cpu_seconds)}"
            f" && {_CPU_SECONDS} < {_CPU_SHARE} * {_RUN_SECONDS}",
            f"no CPU used in {int(limits.no_cpu_seconds)} s",
        ),
        (
            f"JobStatus <= {_RUNNING} && (NumJobStarts ?: 0) > {int(limits.max_starts)} - ifThenElse(JobStatus == {_IDLE}, 1, 0)",
            f"{layout.STARTED_TOO_OFTEN} {int(limits.max_starts)} times",
        ),
    ]
    if pinned:
        days = int(limits.idle_seconds)
        least = f"ifThenElse((NumJobStarts ?: 0) == 0, {layout.IDLE_ATTRIBUTE} ?: {days}, {days})"
        idle = f"JobStatus == {_IDLE} && time() - EnteredCurrentStatus > {least}"
        reasons = f'strcat("WMS2: {layout.IDLE_TOO_LONG} ", {least}, " s")'
    else:
        *found, (idle, reason) = found
        reasons = f'"WMS2: {reason}"'
    for condition, reason in reversed(found):
        reasons = f'ifThenElse({condition}, "WMS2: {reason}", {reasons})'
    waited = f"(HoldReasonCode == {_BY_PERIODIC_HOLD} || time() - EnteredCurrentStatus > {int(limits.held_seconds)})"
    return f"""\
periodic_hold = {" || ".join(f"({condition})" for condition in (*(each for each, _ in found), idle))}
periodic_hold_reason = {reasons}
periodic_remove = JobStatus == {_HELD} && HoldReasonCode =!= {_BY_A_PERSON} && {waited}
"""


def _stamps(spec: DagSpec, role: str) -> str:
    """Attributes by which everything of a DAG is found again; the fence comes from the DAG files' INCLUDE."""
    return f"""\
My.WMS2_Instance = "{plain(spec.instance, "instance")}"
My.WMS2_Request = "{plain(spec.workflow.request_name, "request name")}"
My.WMS2_DagID = "{plain(spec.dag_id, "DAG id")}"
My.{layout.UNIT_ATTRIBUTE} = "$(wms2_unit)"
My.WMS2_Node = "$(JOB)"
My.WMS2_Role = "{role}"
My.WMS2_Attempt = $(RETRY)
"""
