"""At least one row of every model: the scene, and beside it what the scene does not need."""

from __future__ import annotations

import uuid
from pathlib import Path

from django.contrib.auth.models import Group, User

from dags_app.failure_rules import failure_rules_load
from dags_app.models import (
    DAG,
    FailedInputFile,
    FailureGroup,
    FailureLog,
    Leftover,
    Sample,
    SiteJob,
    SiteJobPurpose,
    SizingDecision,
    StateSample,
    StepMeasurement,
    UnreadableInput,
    WorkUnit,
)
from outputs_app.models import (
    BlockValidation,
    Comparison,
    DatasetOwner,
    IntegrityCase,
    OutputFile,
    OwnedDataset,
    Placement,
    ProcessingBlock,
    StorageCheck,
)
from requests_app.models import (
    AdmissionBucket,
    AdmissionLimit,
    AdmissionState,
    Alert,
    AlertChannel,
    AlertMessage,
    AlertNotice,
    AlertRoute,
    EvaluationLease,
    EventFeed,
    Harvest,
    InputFile,
    InputLumis,
    Installation,
    KeptAccount,
    Limit,
    PileupBlock,
    PileupDataset,
    Progress,
    ProgressSample,
    Reconciliation,
    ReqMgr2Request,
    RequestGroup,
    RequestWatch,
    SavedView,
    ServiceLevel,
)
from sites_app.models import HealthChange, Onboarding, PoolSite, Schedd, SiteBan, SiteRse, SystemicAlert
from tests.support import scene
from tests.support.rows import drift_row
from tests.support.scene import Scene
from wms2.models import (
    BulkItem,
    BulkRun,
    FailingTask,
    KeptAnswer,
    PersonalToken,
    RoleAssignment,
    ServiceAccount,
    SsoSession,
    Worker,
)
from wms2.runtime.due import mark_due
from wms2.work.resources import lease_take


def failures_of(dag: DAG) -> None:
    """A rule, and a failure of a DAG with a sample and a bad file."""
    failure_rules_load()
    now = dag.created_at
    FailureLog.objects.create(directory_id=dag.directory_id)
    group = FailureGroup.objects.create(workflow=dag.workflow, category="data", code=8021, first_at=now, last_at=now)
    group.samples.create(dag=dag, unit="mg_000000", node="proc_000000", attempt=0, job_id="1.0", final=True, at=now)
    FailedInputFile.objects.create(workflow=dag.workflow, lfn="/store/a.root", code=8021, last_at=now)
    UnreadableInput.objects.create(workflow=dag.workflow, lfn="/store/a.root", fence=1, code=8021, first_at=now, last_at=now)


def build(directory: Path) -> Scene:
    """Make them all; below ``directory`` what DAGMan would have written."""
    built = scene.build(directory)
    workflow = built.active.workflow
    block = ProcessingBlock.objects.filter(workflow=workflow)[0]
    InputFile.objects.create(workflow=workflow, lfn="/store/a.root", block_name="/a#1", size_bytes=1, events=1)
    InputLumis.objects.create(workflow=workflow, run=1, span=(1, 2))
    unit = WorkUnit.objects.filter(workflow=workflow)[0]
    OutputFile.objects.create(
        lfn="/store/b.root",
        dataset=block.dataset,
        block=block,
        unit=unit,
        rse="T1_US_FNAL_Disk",
        size_bytes=1,
        adler32="0",
        events=1,
        lumis={},
    )
    dag = DAG.objects.get(workflow=workflow)
    dag.history.create(event_type="created", to_status="ready")
    failures_of(dag)
    StepMeasurement.objects.create(round=dag.round, step="GenSim", processes=1, threads=1, jobs=8)
    Sample.objects.create(seconds=300, at=dag.created_at, by="site", site="T1_US_FNAL", units=1)
    StateSample.objects.create(seconds=300, at=dag.created_at, what="running", total=1)
    SizingDecision.objects.create(dag=dag, what="cores", chosen=4, why="3.5 of 8 cores are kept busy")
    mark_due([built.active.pk], "test")
    EvaluationLease.objects.create(request=built.active)
    EvaluationLease.objects.create(request=built.held, due_at=None)
    ReqMgr2Request.objects.create(problem="a clone to be made")
    ReqMgr2Request.objects.create(name="staged_there", status="staged", problem="Memory: is too much")
    RequestGroup.objects.create(name="sample", created_by="olga")
    KeptAccount.objects.create(
        workflow=workflow, basis="a", numbers={}, summary="all done", counted_at=dag.created_at, took_seconds=1.0
    )
    built.active.events.create(kind="alert")
    moments = {"since": dag.created_at, "last_seen": dag.created_at}
    told = Alert.objects.create(code="slow_active", subject=built.active.request_name, request=built.active, **moments)
    channel = AlertChannel.objects.create(name="ops", kind="mail", address="a@b.ch", created_at=dag.created_at, created_by="olga")
    AlertRoute.objects.create(channel=channel, actor="olga", created_at=dag.created_at)
    AlertMessage.objects.create(channel=channel, created_at=dag.created_at, next_attempt_at=dag.created_at)
    AlertNotice.objects.create(alert=told, channel=channel, last_at=dag.created_at)
    Installation.objects.create(instance="test", environment="test")
    ServiceLevel.objects.create()
    EventFeed.objects.create()
    HealthChange.objects.create(schedd=Schedd.objects.all()[0], at=dag.created_at, old="healthy", new="busy", reason="full")
    SystemicAlert.objects.create(holds=True, reason="bad at once are 3 of 4 schedds", began_at=dag.created_at)
    Reconciliation.objects.create(asked_by="olga", reason="test")
    counters = dict.fromkeys(("units", "units_done", "units_failed", "jobs_idle", "jobs_running", "jobs_held"), 1)
    Progress.objects.create(
        request=built.active, at=dag.created_at, first_at=dag.created_at, peak_running=1, job_seconds=1, **counters
    )
    ProgressSample.objects.create(request=built.active, at=dag.created_at, **counters)
    SiteRse.objects.create(site_id="T1_US_FNAL", rse="T1_US_FNAL_Disk", seen_at=dag.created_at)
    SiteBan.objects.create(site_id="T2_DE_DESY", workflow=workflow, reason="down", expires_at="2099-01-01T00:00:00Z")
    reading = uuid.uuid4()
    pileup = PileupDataset.objects.create(name="/PU/Premix-v1/PREMIX", reading=reading, resolved_at=dag.created_at)
    PileupBlock.objects.create(dataset=pileup, reading=reading, name="/PU/Premix-v1/PREMIX#1", events=1)
    job = SiteJob.objects.create(site="T1_US_FNAL", purpose=SiteJobPurpose.REMOVE, schedd=Schedd.objects.all()[0])
    Onboarding.objects.create(schedd=job.schedd, actor="olga", reason="new")
    PoolSite.objects.create(pool=job.schedd.pool, site_id="T1_US_FNAL", total_slots=9, seen_at=dag.created_at)
    Leftover.objects.create(unit=unit, site=job.site, job=job, next_try_at=job.created_at)
    validation = BlockValidation.objects.create(block=block, asked_at=job.created_at)
    place = {"rse": "T1_US_FNAL_Disk", "site": "T1_US_FNAL", "files": 1, "next_try_at": job.created_at}
    StorageCheck.objects.create(validation=validation, generation=1, **place)
    IntegrityCase.objects.create(request=built.active, block=block, name="/store/b.root", prognosis="size_mismatch")
    owned = OwnedDataset.objects.create(name="/A/B-v1/RECO", family=built.active.family)
    drift_row(block)
    Harvest.objects.create(request=built.active, dataset=block.dataset.name, job=job, next_try_at=job.created_at)
    AdmissionLimit.objects.get_or_create(kind="campaign", name="")  # likewise
    AdmissionBucket.objects.create(kind="campaign", name="Run3", full_at="2099-01-01T00:00:00Z")
    AdmissionState.objects.create()
    Placement.objects.get_or_create(campaign="", tier="")  # a migration's, which tests that commit take away
    Comparison.objects.create(dataset=block.dataset)
    DatasetOwner.objects.create(dataset=owned, family=owned.family, request=built.active)
    Limit.objects.create(name="max_active_dags", value=9, reason="test", actor="dan")
    Worker.objects.create(name="celery@a", queues=["celery"], started_at=job.created_at, heartbeat_at=job.created_at)
    lease_take(name="planning", units=1, holder="a plan", process="a:1", ttl_seconds=60)
    times = dict.fromkeys(("since", "last_at", "next_at"), job.created_at)
    FailingTask.objects.create(name="sites_app.tasks.sync_sites", failures=3, last_error="e", **times)
    KeptAnswer.objects.create(identity="olga", key="k", method="POST", path="/", at=job.created_at)
    bulk = BulkRun.objects.create(resource="request", operation="hold", data={}, actor="olga", total=1, created_at=job.created_at)
    group = Group.objects.get_or_create(name="shifters")[0]
    RoleAssignment.objects.create(role="operator", group=group, reason="shifts", actor="olga")
    BulkItem.objects.create(run=bulk, position=0, key="1", name="r")
    owner, program = (User.objects.get_or_create(username=name)[0] for name in ("owen", "program"))
    made = {"created_at": job.created_at, "created_by": "owen"}
    PersonalToken.objects.create(owner=owner, name="t", prefix="abcdefgh", digest="0", expires_at="2099-01-01T00:00:00Z", **made)
    ServiceAccount.objects.create(user=program, owner=owner, purpose="test", **made)
    SavedView.objects.create(owner=owner, name="mine", query="status=held")
    person = User.objects.create_user("sonja")
    RequestWatch.objects.create(request=built.active, user=person, created_at=job.created_at)
    SsoSession.objects.create(user=person, subject="7", names=["a"], read_at=job.created_at, tried_at=job.created_at)
    return built
