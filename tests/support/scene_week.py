"""The busy afternoon of ``scene`` and the seven days before it, as rows: what ended, what failed, who did what about it."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import time_machine
from django.db.models import F
from django.utils import timezone

from dags_app.models import DAG, FailureCategory, FailureGroup, WorkUnit, WorkUnitClaim, WorkUnitState
from outputs_app.models import BlockStatus, ProcessingBlock
from requests_app.feed import emit_event, publish
from requests_app.models import (
    Alert,
    AlertChannel,
    AlertRoute,
    Campaign,
    ChannelKind,
    HoldCode,
    Progress,
    ProgressSample,
    Request,
    RequestStatus,
    RequestTransition,
    Round,
    Severity,
    Workflow,
)
from sites_app.models import Schedd, Site, SiteBan, SiteRse
from tests.support import scene
from tests.support.scene import REASONS, Scene, Units, World, active_request, moved
from tests.support.scene_samples import BAD, BANNED, RISES, SHARES, samples_of_a_week
from wms2.models import AuditEntry, Worker, WorkerPool, WorkerPoolState

C, S = FailureCategory, RequestStatus
#: The shifters of the week, and the operator on call.
NIGHT, DAY, ON_CALL = "sonja", "dan", "olga"
SUMMER, PHASE = "Run3Summer23", "Phase2Spring24"
#: Samples of the course of one request.
STEPS = 100
_WHY_BANNED = f"stage-out fails since yesterday evening (60311), GGUS 168422; {BAD} looks at its storage"
#: Campaign, name, days ago that it ended, work units.
_ENDED = (
    (SUMMER, "pdmvserv_task_TOP-Run3Summer23wmLHEGS-00031__v1_T_260825_101010_11", 6.2, 30),
    (SUMMER, "pdmvserv_task_HIG-Run3Summer23wmLHEGS-00107__v1_T_260826_090000_12", 5.1, 24),
    (scene.ERA, "cmsunified_task_SMP-RunIII2024Summer24GS-00044__v1_T_260827_120000_13", 4.4, 36),
    (SUMMER, "pdmvserv_task_EXO-Run3Summer23DRPremix-00210__v1_T_260828_083000_14", 3.6, 18),
    (PHASE, "pdmvserv_task_TRK-Phase2Spring24GS-00009__v1_T_260828_150000_15", 2.3, 12),
    (scene.ERA, "cmsunified_task_B2G-RunIII2024Summer24MiniAOD-00150__v1_T_260829_111500_16", 1.2, 24),
)  # fmt: skip
#: Campaign, name, units.
_RUNNING = (
    (SUMMER, "pdmvserv_task_HIG-Run3Summer23DRPremix-00108__v2_T_260902_170000_21", Units(60, done=51, failed=1)),
    (PHASE, "pdmvserv_task_TRK-Phase2Spring24GS-00011__v1_T_260903_080000_22", Units(48, done=7)),
)  # fmt: skip
#: Of which request, category, code, step, site, rule, attempts, given up, hours since the last.
_FAILED = (
    ("active", C.INFRASTRUCTURE, 60311, "stageOut", BAD, "cms-60307-60311", 212, 9, 9.2),
    ("refused", C.INFRASTRUCTURE, 60311, "stageOut", BAD, "cms-60307-60311", 147, 4, 9.5),
    ("unaccounted", C.INFRASTRUCTURE, 60311, "stageOut", BAD, "cms-60307-60311", 61, 0, 10.1),
    ("active", C.TRANSIENT, 50660, "Reco", "T1_DE_KIT", "cms-50660", 22, 0, 1.4),
    ("active", C.DATA, 8021, "DIGIRaw", "T2_CH_CERN", "cms-8021", 17, 3, 2.6),
    ("refused", C.TRANSIENT, 50660, "Reco", "T1_US_FNAL", "cms-50660", 31, 1, 0.7),
    ("unaccounted", C.DATA, 8028, "DIGIRaw", "T2_DE_DESY", "cms-8028", 11, 0, 5.3),
)  # fmt: skip


def build(directory: Path) -> Scene:
    """Make all rows; below ``directory`` what DAGMan would have written."""
    now, built = timezone.now(), scene.build(directory)
    _sites(now)
    _service(now)
    world = World(now, Schedd.objects.get(name="schedd1@wms2.example"), directory)
    for campaign, name, days, units in _ENDED:
        _ended(world, campaign, name, now - timedelta(days=days), units)
    for campaign, name, work in _RUNNING:
        _campaign_is(active_request(world, name, work), campaign)
    _campaigns(now)
    _at_their_sites()
    _lumis(built.active.workflow)
    _failures(built, now)
    for request in Request.objects.filter(workflow__dags__isnull=False).distinct():
        _progress(request)
    _alerts(built, now)
    _done(built, now)
    _events()
    samples_of_a_week(now, Counter(Request.objects.values_list("status", flat=True)))
    return built


def _sites(now: datetime) -> None:
    for number, (name, share) in enumerate(SHARES.items()):
        jobs = 0 if name == BAD else round(240 * share / (1 - SHARES[BAD]))
        Site.objects.update_or_create(
            name=name,
            defaults={
                "total_slots": 2000 - 220 * number,
                "running_slots": 8 * jobs,
                "jobs_running": jobs,
                "jobs_idle": round(80 * share),
                "slots_seen_at": now - timedelta(minutes=2),
                "cric_seen_at": now - timedelta(minutes=40),
                "jobs_counted_at": now,
            },
        )
        SiteRse.objects.create(site_id=name, rse=f"{name}_Disk" if name.startswith("T1") else name, seen_at=now)
    banned_at = now - timedelta(hours=BANNED)
    _ban(BAD, ON_CALL, _WHY_BANNED, banned_at, now + timedelta(hours=39))
    former = _ban("T2_UK_London_IC", DAY, "its squid is down; GGUS 168390", now - timedelta(days=5), now - timedelta(days=3))
    SiteBan.objects.filter(pk=former.pk).update(removed_at=now - timedelta(days=4.3), removed_by=NIGHT)
    _audit(now - timedelta(days=4.3), NIGHT, "site_unban", "T2_UK_London_IC", "site", "its squid answers again")


def _ban(site: str, actor: str, reason: str, at: datetime, until: datetime) -> SiteBan:
    ban = SiteBan.objects.create(site_id=site, reason=reason, created_by=actor, expires_at=timezone.now() + timedelta(days=1))
    SiteBan.objects.filter(pk=ban.pk).update(created_at=at, expires_at=until)
    _audit(at, actor, "site_ban", site, "site", reason)
    return ban


def _audit(at: datetime, actor: str, action: str, target: str, target_type: str, reason: str) -> None:
    row = AuditEntry.objects.create(actor=actor, action=action, target=target, target_type=target_type, reason=reason)
    AuditEntry.objects.filter(pk=row.pk).update(at=at)


def _service(now: datetime) -> None:
    """Workers of each queue that are alive."""
    queues = list(WorkerPool.objects.values_list("queue", flat=True))
    WorkerPool.objects.update(state=WorkerPoolState.RUNNING, since=now - timedelta(hours=60))
    for queue in queues:
        Worker.objects.create(
            name=f"{queue}@wms2-1", queues=[queue], takes=[queue], started_at=now - timedelta(hours=60),
            heartbeat_at=now - timedelta(seconds=4),
        )  # fmt: skip


def _ended(world: World, campaign: str, name: str, ended: datetime, units: int) -> None:
    """A request that was done in twenty hours."""
    request = active_request(World(ended - timedelta(hours=1), world.schedd, world.directory), name, Units(units, done=units))
    _campaign_is(request, campaign)
    DAG.objects.filter(workflow__request=request).update(
        status="completed", nodes_running=0, nodes_idle=0, nodes_done=units, completed_at=ended - timedelta(minutes=50)
    )
    ProcessingBlock.objects.filter(workflow__request=request).update(
        status=BlockStatus.ARCHIVED, dbs_block_closed=True, tape_rule_id="0" * 32, sealed_at=ended - timedelta(minutes=30)
    )
    moved(request, S.COMPLETED, ended, "lifecycle", REASONS[S.COMPLETED], completed_at=ended)


def _campaign_is(request: Request, campaign: str) -> None:
    Request.objects.filter(pk=request.pk).update(campaign=campaign)


def _at_their_sites() -> None:
    """Work units that are done were so at each site by its share."""
    rows, first = WorkUnit.objects.filter(state=WorkUnitState.DONE).annotate(part=F("index") % 50), 0
    for site, share in SHARES.items():
        rows.filter(part__gte=first, part__lt=first + round(50 * share)).update(site=site)
        first += round(50 * share)


def _lumis(workflow: Workflow) -> None:
    """Ten events each, claimed beside them."""
    WorkUnitClaim.objects.bulk_create(
        WorkUnitClaim(
            unit=unit, kind=WorkUnitClaim.KIND_GENERATED_LUMIS, scope=workflow.number, run=1,
            first=1 + 160 * unit.index, last=160 * (unit.index + 1),
        )
        for unit in WorkUnit.objects.filter(workflow=workflow)
    )  # fmt: skip


def _campaigns(now: datetime) -> None:
    for name, owner, days, note in (
        (scene.ERA, "PPD, A. Example", 40, "Analyses for the winter conferences wait for it; TOP first."),
        (SUMMER, "PPD", 12, ""),
        (PHASE, "Upgrade, B. Example", 90, "Small samples for the tracker TDR."),
    ):
        Campaign.objects.update_or_create(
            name=name,
            defaults={
                "owner": owner, "note": note, "begins_at": now - timedelta(days=30), "ends_at": now + timedelta(days=days),
                "first_at": now - timedelta(days=29),
            },
        )  # fmt: skip
    _audit(now - timedelta(days=2), ON_CALL, "campaign_note", scene.ERA, "campaign", "asked by PPD")


def _failures(built: Scene, now: datetime) -> None:
    for which, category, code, step, site, rule, attempts, given_up, hours in _FAILED:
        last = now - timedelta(hours=hours)
        FailureGroup.objects.create(
            workflow=getattr(built, which).workflow, category=category, code=code, step=step, site=site, rule=rule,
            attempts=attempts, given_up=given_up, actions={"retry": attempts - given_up}, reason=f"rule {rule}",
            first_at=last - timedelta(hours=RISES - BANNED), last_at=last,
        )  # fmt: skip


def _progress(request: Request) -> None:
    """The course of a request up to what its DAG has done: slow at first, then steady; its jobs go when it is complete."""
    dag = DAG.objects.filter(workflow__request=request).order_by("submitted_at")[0]
    ended = dag.completed_at or timezone.now()
    begun = dag.submitted_at or ended - timedelta(hours=19)
    Round.objects.filter(workflow__request=request).update(created_at=begun)
    units, whole = dag.total_work_units, dag.completed_at is not None
    done = WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.DONE).count()
    rows = []
    for step in range(STEPS + 1):
        part = step / STEPS
        slots = 8 * min(14, units) * math.sin(math.pi / 2 * min(1.0, 1.6 * part + 0.05))
        counters = {
            "units": units,
            "units_done": round(done * part**1.4),
            "units_failed": round(dag.nodes_failed * part**2),
            "jobs_running": round(slots * min(1.0, 6 * (1 - part)) if whole else slots),
            "jobs_idle": round(3 * min(14, units) * (1 - part**1.4)),
            "jobs_held": 0,
        }
        rows.append(ProgressSample(request=request, at=begun + (ended - begun) * part, **counters))
    ProgressSample.objects.bulk_create(rows)
    summary = {"at": ended, "first_at": begun, "peak_running": max(row.jobs_running for row in rows), "job_seconds": 1.0}
    Progress.objects.update_or_create(request=request, defaults=summary | counters)


def _alerts(built: Scene, now: datetime) -> None:
    """Open ones as the life cycle finds them, one taken, one silenced; and some that are over."""
    held = Alert.objects.create(
        code="request_held", subject=built.held.request_name, request=built.held, cause=HoldCode.THRESHOLD.label, condition=True,
        text=built.held.hold_reason, since=built.held.status_since, last_seen=now, severity=Severity.WARNING,
    )  # fmt: skip
    taken = now - timedelta(hours=2, minutes=40)
    Alert.objects.filter(pk=held.pk).update(owner=NIGHT, acknowledged_by=NIGHT, acknowledged_at=taken)
    _audit(taken, NIGHT, "alert_acknowledge", str(held), "alert", "one bad input file at T2_CH_CERN; written to its owner")
    banned = Alert.objects.create(
        code="site_closed", subject=BAD, site=BAD, cause=BAD, condition=True, severity=Severity.INFO, last_seen=now,
        text=f"banned for all by {ON_CALL} until {now + timedelta(hours=39):%Y-%m-%d %H:%M} UTC: {_WHY_BANNED}",
        since=now - timedelta(hours=BANNED), silenced_until=now + timedelta(hours=39), silenced_by=ON_CALL,
        silence_reason="known, GGUS 168422",
    )  # fmt: skip
    _audit(now - timedelta(hours=BANNED - 0.2), ON_CALL, "alert_silence", str(banned), "alert", "known, GGUS 168422")
    for request, code, text, cause in (
        (built.refused, "effect_refused", "dbs register_block: it lacks 1 files, first f1.root", "Register a block"),
        (built.unaccounted, "units_unaccounted", "merge_output.json is missing", ""),
    ):
        Alert.objects.create(
            code=code, subject=request.request_name, request=request, text=text, cause=cause, since=request.alerted_at or now,
            last_seen=now, severity=Severity.WARNING,
        )  # fmt: skip
    silent = Schedd.objects.get(name="schedd2@wms2.example")
    Alert.objects.create(
        code="schedd_silent", subject=silent.name, schedd=silent.name, pool=silent.pool_id, cause=silent.name, condition=True,
        text="silent, 0 live DAGs", since=silent.unreachable_since or now, last_seen=now, severity=Severity.WARNING,
    )  # fmt: skip
    for days, hours, code, subject, text, severity in (
        (0.9, 3.2, "channel_failing", "chat", "HTTP 502 Bad Gateway", Severity.WARNING),
        (2.5, 0.4, "workers_missing", "effects", "no worker alive; start one", Severity.CRITICAL),
        (3.1, 5.0, "reqmgr2_silent", "ReqMgr2", "timed out after 30 s", Severity.WARNING),
        (4.9, 14.0, "site_closed", "T2_UK_London_IC", "banned for all: its squid is down; GGUS 168390", Severity.INFO),
    ):
        since = now - timedelta(days=days)
        Alert.objects.create(
            code=code, subject=subject, cause=subject, text=text, since=since, condition=True, severity=severity,
            last_seen=since + timedelta(hours=hours), ended_at=since + timedelta(hours=hours),
        )  # fmt: skip
    for name, kind, address, secret in (
        ("shift", ChannelKind.MAIL, "wms2-shift@cern.example", ""),
        ("chat", ChannelKind.MATTERMOST, "https://mattermost.cern.example/hooks", "chat"),
    ):
        channel = AlertChannel.objects.create(
            name=name, kind=kind, address=address, secret=secret, digest=name == "shift", created_by=ON_CALL,
            created_at=now - timedelta(days=20), sent_at=now - timedelta(minutes=21),
        )  # fmt: skip
        AlertRoute.objects.create(channel=channel, actor=ON_CALL, reason="shifts", created_at=now - timedelta(days=20))


def _events() -> None:
    """Of each change of a status, with its place in the feed."""
    for row in RequestTransition.objects.select_related("request").order_by("at", "id"):
        with time_machine.travel(row.at, tick=False):
            emit_event("request.status", row.request, **{"from": row.from_status}, to=row.to_status, actor=row.actor)
    publish()


def _done(built: Scene, now: datetime) -> None:
    """What people did in this shift and the one before, beside bans and alerts."""
    said: tuple[tuple[float, str, str, Any, str], ...] = (
        (18.0, DAY, "request_priority", built.active, "TOP first, asked by PPD"),
        (12.5, DAY, "request_hold", built.queued, "wait for the new gridpack"),
        (11.0, ON_CALL, "request_release", built.queued, "the gridpack is there"),
        (3.0, NIGHT, "request_sites", built.active, f"not at {BAD}, GGUS 168422"),
    )
    for hours, actor, action, request, reason in said:
        _audit(now - timedelta(hours=hours), actor, action, request.request_name, "request", reason)
