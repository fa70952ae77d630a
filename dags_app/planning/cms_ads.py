"""Attributes by which CMS's pool, monitoring and accounting know a job, in WMAgent's spelling. Pure text.

``REQUIRED_OS`` is read by the glideins, which run the job in a container of that system, and ``REQUIRED_MINIMUM_MICROARCH``, by
which they refuse jobs that their processor cannot run; ``REQUIRED_ARCH`` by our own requirements. The rest is read by nobody who
matches: dashboards and accounting group jobs by it. Spec 4.5; WMCore's SimpleCondorPlugin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from dags_app.payload.contract import layout
from dags_app.payload.contract.platforms import ARCHITECTURES, SYSTEMS
from dags_app.planning.levels import FIRST_TASK
from dags_app.planning.quoting import plain
from dags_app.planning.specs import DagSpec, StepSpec, WorkflowSpec

_ANY, _ELSEWHERE = "any", "Unknown"
_PRODUCTION = "production"
#: ``CMS_Type`` of jobs that are no production work: dashboards and accounting leave them out.
UNMONITORED = "DONOTMONIT"
#: Which tool made the job; and what of the machine its ad keeps, from which monitoring takes the site.
TOOL_LINES = """\
My.CMS_WMTool = "WMS2"
My.CMS_SubmissionTool = "WMS2"
My.JobMachineAttrs = "GLIDEIN_CMSSite,GLIDEIN_Gatekeeper"
"""
#: Whose a request is, by its name.
_GROUP = re.compile(r"[A-Za-z0-9_]+_([A-Za-z0-9]+)-")


class NodeRole(StrEnum):
    """What a node's job is to the specification; beside it the same as WMAgent types its jobs."""

    LANDING = "Landing"
    PROCESSING = "Processing"
    MERGE = "Merge"
    CLEANUP = "Cleanup"
    HARVESTING = "Harvesting"


def platform_lines(steps: Sequence[StepSpec]) -> str:
    """System and architecture that the steps of a job need; each line ends with a line end."""
    systems = _common(steps, 0, SYSTEMS) or (_ANY,)
    lines = f'My.REQUIRED_OS = "{",".join(systems)}"\n'
    architectures = _common(steps, 1, ARCHITECTURES)
    level = max((step.microarch for step in steps), default=0) if "X86_64" in architectures else 0
    lines += f"My.REQUIRED_MINIMUM_MICROARCH = {level}\n"
    return lines + (f'My.REQUIRED_ARCH = "{",".join(architectures)}"\n' if architectures else "")


def platform_requirement(steps: Sequence[StepSpec]) -> str:
    """What the job's requirements say of the machine's architecture; without it HTCondor asks for the schedd's own."""
    return " && stringListMember(TARGET.Arch, MY.REQUIRED_ARCH)" if _common(steps, 1, ARCHITECTURES) else ""


def _common(steps: Iterable[StepSpec], part: int, names: Mapping[str, str]) -> tuple[str, ...]:
    """What all steps can run on: each lists alternatives. Where there is no common one, any of them: the job has the other steps
    run in containers of their own (``payload/run/cmssw.py``)."""
    wanted = [
        {names[word] for arch in step.scram_arch for word in arch.split("_")[part : part + 1] if word in names} for step in steps
    ]
    known = [each for each in wanted if each]
    if not known:
        return ()
    return tuple(sorted(set.intersection(*known) or set.union(*known)))


def cms_lines(spec: DagSpec, role: NodeRole, task: int = FIRST_TASK) -> str:
    """What monitoring and accounting read; each line ends with a line end."""
    workflow, accounting = spec.workflow, spec.accounting
    request = plain(workflow.request_name, "request name")
    lines = [
        f'My.CMS_RequestName = "{request}"',
        f'My.CMS_WorkflowID = "{plain(spec.workflow_id, "workflow id")}"',
        f'My.CMS_NodeRole = "{role}"',
        f'My.CMS_JobType = "{_job_type(workflow, role, task)}"',
        f'My.CMS_Type = "{_cms_type(spec, role)}"',
        f'My.CMS_extendedJobType = "{_job_type(workflow, role, task)}"',
        f'My.CMSSW_Versions = "{",".join(dict.fromkeys(plain(step.cmssw_version, "release") for step in workflow.steps))}"',
        f'My.CMS_CampaignName = "{plain(workflow.campaign, "campaign")}"',
        TOOL_LINES.rstrip(),
        f'My.WMAgent_AgentName = "{plain(spec.instance, "instance")}"',
        f'My.WMAgent_RequestName = "{request}"',
        f'My.WMAgent_SubTaskName = "/{request}/{_task_path(workflow, role, task)}"',
    ]
    if group := _GROUP.match(request):
        lines.append(f'My.CMSGroups = "{group.group(1)}"')
    if workflow.request_type:
        lines.append(f'My.CMS_RequestType = "{plain(workflow.request_type, "request type")}"')
    if workflow.input is not None and role is NodeRole.PROCESSING and task == FIRST_TASK:
        # with TrustSitelists nobody has asked where it lies: monitoring is to take the job for one that reads from afar
        where = _ELSEWHERE if workflow.trust_sitelists else f"$({layout.SITE_MACRO})"
        lines.append(f'My.DESIRED_CMSDataset = "{plain(workflow.input.dataset, "input dataset")}"')
        lines.append(f'My.DESIRED_CMSDataLocations = "{where}"')
    if role is NodeRole.PROCESSING and (mixed := sorted({each.dataset for step in workflow.steps for each in step.pileup})):
        lines.append(f'My.DESIRED_CMSPileups = "{",".join(plain(each, "pileup dataset") for each in mixed)}"')
    if accounting.io_slots:
        lines.append(f"My.Requestioslots = {int(role in (NodeRole.MERGE, NodeRole.CLEANUP))}")
    if accounting.group:
        lines.append(f"accounting_group = {plain(accounting.group, 'accounting group')}")
    if accounting.user:
        lines.append(f"accounting_group_user = {plain(accounting.user, 'accounting user')}")
    return "\n".join(lines) + "\n"


def _cms_type(spec: DagSpec, role: NodeRole) -> str:
    """A landing job only finds the site."""
    if role is NodeRole.LANDING:
        return UNMONITORED
    return _PRODUCTION if spec.accounting.production else "test"


def _job_type(workflow: WorkflowSpec, role: NodeRole, task: int) -> str:
    """WMAgent calls generating jobs Production, and those of later tasks, which read, Processing."""
    generates = role is NodeRole.PROCESSING and workflow.input is None and task == FIRST_TASK
    return "Production" if generates else str(role)


def _task_path(workflow: WorkflowSpec, role: NodeRole, task: int) -> str:
    """As WMAgent names tasks: monitoring tells merges and cleanups by the end of the path."""
    names = {each.number: each.name for each in workflow.tasks} or {FIRST_TASK: workflow.steps[0].name}
    name = plain(names[task], "task name")
    return name if role is NodeRole.PROCESSING else f"{name}/{name}{role}"
