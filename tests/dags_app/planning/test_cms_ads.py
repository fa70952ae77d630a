"""What jobs carry for CMS's pool, monitoring and accounting."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from dags_app.payload.contract.documents import Pileup
from dags_app.planning.cms_ads import NodeRole, platform_lines, platform_requirement, read_levels, with_levels
from dags_app.planning.specs import AccountingSpec, SplittingAlgo
from dags_app.planning.submitfiles import SiteSlot, landing_submit, node_submit, site_job_submit
from requests_app.services.decisions import MAX_PRIORITY
from tests.support.cases import in_one_test
from tests.support.planning import dag_spec, input_workflow, task_tree

STEP = dag_spec().workflow.steps[0]
processing_submit = partial(node_submit, role=NodeRole.PROCESSING)
merge_submit = partial(node_submit, role=NodeRole.MERGE)
#: Role -> its submit file.
ROLES = {
    "Landing": landing_submit,
    "Processing": processing_submit,
    "Merge": merge_submit,
    "Cleanup": partial(node_submit, role=NodeRole.CLEANUP),
}


def attributes(text: str) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)


@in_one_test(
    "steps, system, architecture",
    [
        ([["slc6_amd64_gcc630"]], "rhel6", "X86_64"),
        ([["slc7_amd64_gcc820"]], "rhel7", "X86_64"),
        ([["cs7_amd64_gcc9"]], "rhel7", "X86_64"),
        ([["el8_amd64_gcc12"]], "rhel8", "X86_64"),
        ([["el9_aarch64_gcc12"]], "rhel9", "aarch64"),
        ([["cc8_ppc64le_gcc9"]], "rhel8", "ppc64le"),
        ([["slc7_amd64_gcc10", "slc7_aarch64_gcc10", "el8_amd64_gcc10"]], "rhel7,rhel8", "X86_64,aarch64"),
        ([["el8_amd64_gcc12", "slc7_amd64_gcc10"], ["el8_amd64_gcc11"]], "rhel8", "X86_64"),
        ([["slc7_amd64_gcc10"], ["el8_amd64_gcc11"]], "rhel7,rhel8", "X86_64"),
        ([["osx10_arm_llvm"], []], "any", None),
    ],
)
def test_system_and_architecture_follow_from_the_scram_architectures(
    steps: list[list[str]], system: str, architecture: str | None
) -> None:
    made = [replace(STEP, scram_arch=tuple(archs)) for archs in steps]
    found = attributes(platform_lines(made))
    assert found["My.REQUIRED_OS"] == f'"{system}"'
    assert found.get("My.REQUIRED_ARCH") == (f'"{architecture}"' if architecture else None)
    assert ("TARGET.Arch" in platform_requirement(made)) == (architecture is not None), "else HTCondor asks for the schedd's own"


RELEASES = """\
architecture=el8_amd64_gcc12;label=CMSSW_14_1_0;type=Production;state=Announced;prodarch=1;default_micro_arch=x86-64-v3;
architecture=el9_amd64_gcc12;label=CMSSW_14_1_0;type=Production;state=Announced;prodarch=0;default_micro_arch=x86-64-v2;
architecture=el8_amd64_gcc12;label=CMSSW_14_0_0;type=Production;state=Announced;prodarch=1;
architecture=el8_aarch64_gcc12;label=CMSSW_14_1_0;type=Production;state=Announced;prodarch=0;default_micro_arch=armv8;
"""


@pytest.mark.parametrize(
    ("steps", "level"),
    [
        ([("CMSSW_14_1_0", "el8_amd64_gcc12")], "3"),
        ([("CMSSW_14_1_0", "el9_amd64_gcc12")], "2"),
        ([("CMSSW_14_0_0", "el8_amd64_gcc12"), ("CMSSW_14_1_0", "el8_amd64_gcc12")], "3"),
        ([("CMSSW_14_0_0", "el8_amd64_gcc12")], "0"),
        ([("CMSSW_14_1_0", "el8_aarch64_gcc12")], "0"),
        ([("CMSSW_9_9_9", "slc7_amd64_gcc700")], "0"),
    ],
)
def test_a_job_asks_for_the_processor_that_its_releases_were_built_for(steps: list[tuple[str, str]], level: str) -> None:
    made = [replace(STEP, cmssw_version=release, scram_arch=(arch,)) for release, arch in steps]
    found = attributes(platform_lines(with_levels(made, read_levels(RELEASES))))
    assert found["My.REQUIRED_MINIMUM_MICROARCH"] == level
    assert attributes(platform_lines(made))["My.REQUIRED_MINIMUM_MICROARCH"] == "0", "glideins compare it, so it is always there"


def test_tasks_ask_for_what_their_own_steps_need_and_the_landing_for_what_all_do() -> None:
    tree = task_tree()
    mixed = replace(tree, steps=(replace(tree.steps[0], scram_arch=("slc7_amd64_gcc10", "el8_amd64_gcc10")), *tree.steps[1:]))
    rest = {step.scram_arch for step in tree.steps[1:]}
    assert rest == {("slc7_amd64_gcc900",)}
    spec = dag_spec(mixed)
    assert attributes(processing_submit(spec))["My.REQUIRED_OS"] == '"rhel7,rhel8"'
    assert attributes(processing_submit(spec, task=2))["My.REQUIRED_OS"] == '"rhel7"'
    assert attributes(landing_submit(spec))["My.REQUIRED_OS"] == '"rhel7"'


def test_monitoring_tells_requests_tasks_and_kinds_of_jobs_apart() -> None:
    spec = dag_spec(input_workflow(SplittingAlgo.FILE_BASED))
    name, first = spec.workflow.request_name, spec.workflow.steps[0].name
    jobs = {role: attributes(text(spec)) for role, text in ROLES.items()}
    assert {each["My.WMAgent_RequestName"] for each in jobs.values()} == {f'"{name}"'}
    assert {each["My.CMS_RequestName"] for each in jobs.values()} == {f'"{name}"'}
    assert {each["My.CMS_WorkflowID"] for each in jobs.values()} == {f'"{spec.workflow_id}"'}
    for role, job in jobs.items():
        assert job["My.CMS_NodeRole"] == job["My.CMS_JobType"] == f'"{role}"'
    assert jobs["Processing"]["My.WMAgent_SubTaskName"] == f'"/{name}/{first}"'
    assert jobs["Merge"]["My.WMAgent_SubTaskName"] == f'"/{name}/{first}/{first}Merge"'
    assert spec.workflow.input is not None
    assert jobs["Processing"]["My.DESIRED_CMSDataset"] == f'"{spec.workflow.input.dataset}"'
    assert "My.DESIRED_CMSDataset" not in jobs["Merge"], "it reads what the unit itself made"
    tree = dag_spec(task_tree())
    kinds = [
        attributes(processing_submit(each, task=task))["My.CMS_JobType"] for each, task in ((dag_spec(), 1), (tree, 1), (tree, 2))
    ]
    assert kinds == ['"Production"', '"Production"', '"Processing"']


def test_jobs_are_counted_to_the_configured_group() -> None:
    free, counted = dag_spec(), replace(dag_spec(), accounting=AccountingSpec("production", "cmsdataops", True))
    assert "accounting_group" not in attributes(processing_submit(free))
    assert attributes(processing_submit(free))["My.CMS_Type"] == '"test"'
    for submit in ROLES.values():
        found = attributes(submit(counted))
        assert (found["accounting_group"], found["accounting_group_user"]) == ("production", "cmsdataops")
        assert found["My.CMS_Type"] == ('"DONOTMONIT"' if submit is landing_submit else '"production"')


def test_a_job_that_requests_wait_for_goes_before_every_node_of_a_dag() -> None:
    text = site_job_submit("T2_CH_CERN", SiteSlot(10), accounting=AccountingSpec())
    (priority,) = (int(line.partition("=")[2]) for line in text.splitlines() if line.startswith("priority ="))
    assert MAX_PRIORITY < priority < 2**31


def test_monitoring_finds_what_it_reads_of_wmagents_jobs() -> None:
    spec = dag_spec()
    jobs = {role: attributes(text(spec)) for role, text in ROLES.items()}
    for job in jobs.values():
        assert job["My.JobMachineAttrs"] == '"GLIDEIN_CMSSite,GLIDEIN_Gatekeeper"'
        assert job["My.CMS_SubmissionTool"] == job["My.CMS_WMTool"] == '"WMS2"'
        assert job["My.WMAgent_AgentName"] == f'"{spec.instance}"'
        assert job["My.CMSSW_Versions"] == f'"{STEP.cmssw_version}"'
        assert job["My.CMS_extendedJobType"] == job["My.CMS_JobType"]
        assert job["My.ExtDESIRED_Sites"] == job["My.DESIRED_Sites"]
        assert "My.Requestioslots" not in job, "HTCondor would demand such slots of every machine; only CMS's pilots have them"
        assert "My.CMS_RequestType" not in job, "of a former release's request it is not known"
    assert [job["My.CMS_Type"] for job in jobs.values()] == ['"DONOTMONIT"', '"test"', '"test"', '"test"']
    site = attributes(site_job_submit("T2_CH_CERN", SiteSlot(10), accounting=AccountingSpec(production=True)))
    assert (site["My.CMS_Type"], site["My.CMS_WMTool"]) == ('"DONOTMONIT"', '"WMS2"')


def test_monitoring_finds_where_the_input_lies_what_is_mixed_and_what_was_asked_for() -> None:
    spec = dag_spec(input_workflow(SplittingAlgo.FILE_BASED, request_type="ReReco"))
    job, merge = attributes(processing_submit(spec)), attributes(merge_submit(spec))
    assert job["My.CMS_RequestType"] == merge["My.CMS_RequestType"] == '"ReReco"'
    assert job["My.DESIRED_CMSDataLocations"] == '"$(ELECTED_SITE)"' and "My.DESIRED_CMSDataLocations" not in merge
    assert (job["My.OriginalCpus"], job["My.OriginalMaxWallTimeMins"]) == (job["request_cpus"], "$(wall_minutes)")
    assert job["My.OriginalMemory"] in job["request_memory"] and merge["My.OriginalMemory"].isdigit()
    afar = dag_spec(input_workflow(SplittingAlgo.FILE_BASED, trust_sitelists=True))
    assert attributes(processing_submit(afar))["My.DESIRED_CMSDataLocations"] == '"Unknown"', "not onsite"
    mixing = replace(spec.workflow.steps[0], pileup=(Pileup("mc", "/B/Era-v1/PREMIX"), Pileup("data", "/A/Era-v1/RAW")))
    mixed = replace(spec, workflow=replace(spec.workflow, steps=(mixing,)))
    assert attributes(processing_submit(mixed))["My.DESIRED_CMSPileups"] == '"/A/Era-v1/RAW,/B/Era-v1/PREMIX"'
    slots = replace(spec, accounting=AccountingSpec(io_slots=True))
    assert [attributes(submit(slots))["My.Requestioslots"] for submit in ROLES.values()] == ["0", "0", "1", "1"]


@pytest.mark.parametrize(
    ("name", "group"), [("pdmvserv_task_HIG-Run3-00001__v1_T_1", "HIG"), ("cmsunified_ACDC0_task_B2G-1", "B2G"), ("tester", None)]
)
def test_whose_a_request_is_is_read_from_its_name(name: str, group: str | None) -> None:
    spec = dag_spec()
    job = attributes(processing_submit(replace(spec, workflow=replace(spec.workflow, request_name=name))))
    assert job.get("My.CMSGroups") == (f'"{group}"' if group else None)


@pytest.mark.parametrize("submit", list(ROLES.values())[1:])
def test_a_job_router_that_rewrites_desired_sites_moves_no_job_of_an_elected_unit(submit) -> None:
    job = attributes(submit(dag_spec()))
    assert job["My.WMS2_Site"] == '"$(ELECTED_SITE)"'
    assert job["requirements"].startswith("stringListMember(TARGET.GLIDEIN_CMSSite, MY.WMS2_Site) && ")
    assert "DESIRED_Sites" not in job["requirements"]
