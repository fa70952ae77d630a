"""Attributes by which CMS's pool, monitoring and accounting know a job, in WMAgent's spelling. Pure text.

``REQUIRED_OS`` is read by the glideins, which run the job in a container of that system, and ``REQUIRED_MINIMUM_MICROARCH``, by
which they refuse jobs that their processor cannot run; ``REQUIRED_ARCH`` by our own requirements. The rest does not serve the
matching: dashboards and accounting group jobs by it. Spec 4.5; WMCore's SimpleCondorPlugin.
Owns also which text may stand in DAG and submit files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from dags_app.payload.contract import layout
from dags_app.payload.contract.platforms import ARCHITECTURES, SYSTEMS
from dags_app.planning.levels import FIRST_TASK, all_tasks
from dags_app.planning.specs import DagSpec, StepSpec

_ANY, _ELSEWHERE = "any", "Unknown"
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


#: DAGMan and condor_submit each expand ``$`` and cut at quotes and line ends, and nothing that names a request or a site needs
#: such characters; a value that has them is a mistake or an attack, so it is refused instead of escaped.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+=@/-]*")


def plain(value: str, what: str) -> str:
    """``value`` itself, when it is safe inside quotes in a DAG or submit file.

    Raises:
        ValueError: naming ``what`` and the characters.
    """
    if _PLAIN.fullmatch(value):
        return value
    wrong = "".join(sorted({character for character in value if not _PLAIN.fullmatch(character)}))
    raise ValueError(f"{what} {value!r} has characters that cannot stand in a DAG file: {wrong!r}")


@lru_cache
def site_list(sites: frozenset[str]) -> str:
    """Sites sorted and joined by commas, as HTCondor's string lists want them."""
    for site in sites:
        if "," in site or not site:
            raise ValueError(f"{site!r} is not a site name")
        plain(site, "site")
    return ",".join(sorted(sites))


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


_LEVEL = re.compile(r"x86-64-v(\d+)")
#: (architecture, release) -> the least level of x86-64 that it runs on.
Levels = Mapping[tuple[str, str], int]


def read_levels(text: str) -> Levels:
    """What releases were built for, by CMS's own list of them (``releases.map`` of CVMFS), where it names a level of x86-64:
    lines of ``architecture=...;label=...;...;default_micro_arch=x86-64-v3;``."""
    found = {}
    for line in text.splitlines():
        values = dict(part.partition("=")[::2] for part in line.split(";") if "=" in part)
        level = _LEVEL.fullmatch(values.get("default_micro_arch", ""))
        if level is not None:
            found[values.get("architecture", ""), values.get("label", "")] = int(level[1])
    return found


def with_levels(steps: Sequence[StepSpec], levels: Levels) -> tuple[StepSpec, ...]:
    """Steps with the level that they need, whichever of their architectures a job takes."""
    return tuple(
        replace(step, microarch=max((levels.get((arch, step.cmssw_version), 0) for arch in step.scram_arch), default=0))
        for step in steps
    )


def cms_lines(spec: DagSpec, role: NodeRole, task: int = FIRST_TASK) -> str:
    """What monitoring and accounting read; each line ends with a line end."""
    workflow, accounting = spec.workflow, spec.accounting
    request = plain(workflow.request_name, "request name")
    # WMAgent calls generating jobs Production, and those of later tasks, which read, Processing
    generates = role is NodeRole.PROCESSING and workflow.input is None and task == FIRST_TASK
    job_type = "Production" if generates else str(role)
    kind = "production" if accounting.production else "test"
    # as WMAgent names tasks: monitoring recognises merges and cleanups by the end of the path
    named = next(each.name for each in all_tasks(workflow) if each.number == task)
    name = plain(named or workflow.steps[0].name, "task name")
    path = name if role is NodeRole.PROCESSING else f"{name}/{name}{role}"
    lines = [
        f'My.CMS_RequestName = "{request}"',
        f'My.CMS_WorkflowID = "{plain(spec.workflow_id, "workflow id")}"',
        f'My.CMS_NodeRole = "{role}"',
        f'My.CMS_JobType = "{job_type}"',
        f'My.CMS_Type = "{UNMONITORED if role is NodeRole.LANDING else kind}"',  # a landing job only finds the site
        f'My.CMS_extendedJobType = "{job_type}"',
        f'My.CMSSW_Versions = "{",".join(dict.fromkeys(plain(step.cmssw_version, "release") for step in workflow.steps))}"',
        f'My.CMS_CampaignName = "{plain(workflow.campaign, "campaign")}"',
        TOOL_LINES.rstrip(),
        f'My.WMAgent_AgentName = "{plain(spec.instance, "instance")}"',
        f'My.WMAgent_RequestName = "{request}"',
        f'My.WMAgent_SubTaskName = "/{request}/{path}"',
    ]
    if group := _GROUP.match(request):
        lines.append(f'My.CMSGroups = "{group.group(1)}"')
    if workflow.request_type:
        lines.append(f'My.CMS_RequestType = "{plain(workflow.request_type, "request type")}"')
    if workflow.input is not None and role is NodeRole.PROCESSING and task == FIRST_TASK:
        # with TrustSitelists it is not known where it lies: monitoring is to take the job for one that reads from afar
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
