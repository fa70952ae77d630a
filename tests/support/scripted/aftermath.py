"""What must hold of ends and of what comes after them (error-handling 3 to 7; docs/design/model.md): how DAGs ended, why
requests are held, what is excluded, versions and the fate of outputs.

``check`` after every step, ``check_at_rest`` once nothing is under way.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from django.db import connection
from django.db.models import F

from dags_app import states as dag_states
from dags_app.models import DAG, LIVE_DAG, DAGHistory, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from outputs_app.models import (
    SETTLED_EFFECT,
    BlockStatus,
    CaseState,
    DatasetState,
    Effect,
    EffectKind,
    EffectState,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from requests_app.models import HoldCode, InputFile, Request, RequestStatus, RequestTransition, Workflow
from requests_app.selectors.versions import requests_before
from requests_app.services import restart
from requests_app.work.overrides import overrides_of
from sites_app.bans import bans_active
from sites_app.models import Site, SiteStatus
from tests.support.scripted import losses
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.models import AuditEntry

S = RequestStatus

#: Where the fate of a dataset may go.
_FATES = {
    DatasetState.ACTIVE: {DatasetState.SUPERSEDED, DatasetState.INVALIDATED},
    DatasetState.SUPERSEDED: {DatasetState.INVALIDATED},
    DatasetState.INVALIDATED: set(),
}


def check(world: World) -> None:
    """Everything at once.

    Raises:
        AssertionError: says which row and what.
    """
    requests = {request.request_name: request for request in Request.objects.defer("request_data")}
    _ends(world)
    _holds(world, requests)
    _work(world)
    _numbers()
    _exclusions(world)
    _failed(requests)
    _versions(requests)
    _fates(world, requests)
    losses.check(world)


def _ends(world: World) -> None:
    """A DAG is COMPLETED only if its job was; what proves nothing ends as nothing; rescues are of their kind."""
    moves = DAGHistory.objects.exclude(from_status="").exclude(to_status="").values_list("from_status", "to_status").distinct()
    for old, new in moves:
        assert DAGStatus(new) in dag_states.TRANSITIONS[DAGStatus(old)], f"a DAG went from {old} to {new}"
    jobs = losses.jobs_by_key(world)
    for dag in DAG.objects.exclude(dagman_cluster_id="").select_related("parent_dag"):
        job = jobs[dag.dagman_cluster_id, str(dag.pk)]
        assert dag.missing_since is None or dag.status in LIVE_DAG, f"{dag} has ended, and is still missing"
        if dag.status == DAGStatus.COMPLETED:
            assert job.completed, f"{dag} is COMPLETED; its job {job.ended}: {job.nodes}"
        if not job.live and job.ended is not None and job.ended.proves_nothing:
            reported = (DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED, DAGStatus.STOPPED)
            unheard = job.ended is End.DISPUTED and "history" not in dag.outcome  # judged before the history knew of it
            assert dag.status in reported or dag.outcome.get("lost") or unheard, f"{dag} is {dag.status}, and {job.ended.value}"
        if dag.parent_dag is not None:
            parent = dag.parent_dag
            stopped = parent.status in (DAGStatus.STOPPED, DAGStatus.REMOVED) or parent.stop_requested_at is not None
            assert (dag.kind == DAGKind.STOP_RESCUE) == stopped, f"{dag}: {dag.kind} of a DAG that was {dag.parent_dag.status}"


def _holds(world: World, requests: dict[str, Request]) -> None:
    """Each hold has the code that is true, judged when it is first seen."""
    jobs = losses.jobs_by_key(world)
    for request in requests.values():
        if request.status != S.HELD:
            continue
        key = ("held", RequestTransition.objects.filter(request=request).latest("id").pk)
        if key in world.checked:
            continue
        world.checked[key] = True
        _true_code(world, request, jobs)


def _true_code(world: World, request: Request, jobs: dict[tuple[str, str], Job]) -> None:
    name, code = f"{request.request_name}, held: {request.hold_reason}", request.hold_code
    last = DAG.objects.filter(workflow__request=request, submitted_at__isnull=False).order_by("-fence").first()
    job = jobs.get((last.dagman_cluster_id, str(last.pk))) if last is not None else None
    if code == HoldCode.OPERATOR:
        assert AuditEntry.objects.filter(target=request.request_name, action="request_hold", outcome="done").exists(), name
    elif code == HoldCode.ABORT_CODE:
        assert job is not None, name
        assert job.ended is End.ABORTED, name
    elif code == HoldCode.REMOVED:
        assert job is not None, name
        assert job.ended in (End.REMOVED, End.DRAINED), f"{name}: {job.ended}"
    elif code == HoldCode.QUEUE_LOST:
        newest = DAG.objects.filter(workflow__request=request, fence__gt=0).order_by("-fence")[0]
        assert newest.outcome.get("lost"), f"{name}: {newest} is not lost"
    elif code == HoldCode.LEDGER:
        assert request.request_name in world.schedd.overdone, name
    elif code in (HoldCode.THRESHOLD, HoldCode.RESCUES):
        assert last is not None, name
        units = WorkUnit.objects.filter(round_id=last.round_id)
        failed, total = units.filter(state=WorkUnitState.PLANNED).count(), units.count()
        threshold = overrides_of(request).error_hold_threshold or conf().limits.error_hold_threshold
        assert (failed / total >= threshold) == (code == HoldCode.THRESHOLD), f"{name}: {failed} of {total}, {threshold}"
        if code == HoldCode.RESCUES:
            assert last.kind == DAGKind.FAILURE_RESCUE or conf().limits.error_max_rescue_attempts == 0, name


def _work(world: World) -> None:
    """What is done stays done and keeps its claims, unless its files were lost."""
    done = set(WorkUnit.objects.filter(state=WorkUnitState.DONE).values_list("pk", flat=True))
    lost = world.checked.get("done", set()) - done
    assert not lost, f"work units that were done are not any more: {lost}"
    world.checked["done"] = done
    cut = {each["unit"] for case in IntegrityCase.objects.filter(state=CaseState.REMOVED) for each in case.cut["units"]}
    dropped = WorkUnitClaim.objects.filter(unit__state=WorkUnitState.DONE, live=False).exclude(unit__in=cut)
    assert not dropped.exists(), f"claims of done units were given back: {list(dropped)}"
    kept = WorkUnitClaim.objects.filter(unit__state__in=(WorkUnitState.FAILED, WorkUnitState.ABANDONED), live=True)
    assert not kept.exists(), f"claims of failed units live on: {list(kept)}"


def _numbers() -> None:
    """No number of a generated event or lumi is ever given to two units, failed ones included."""
    query = """
        SELECT count(*) FROM work_unit_claims a JOIN work_unit_claims b
        ON a.id < b.id AND a.kind = b.kind AND a.scope = b.scope AND a.run = b.run AND a.first <= b.last AND b.first <= a.last
        WHERE a.kind IN (%s, %s)
    """
    with connection.cursor() as cursor:
        cursor.execute(query, [WorkUnitClaim.KIND_GENERATED, WorkUnitClaim.KIND_GENERATED_LUMIS])
        (twice,) = cursor.fetchone()
    assert not twice, "numbers of generated events were handed out twice"


def _exclusions(world: World) -> None:
    """Nobody reads a file that is left out, it stays out until an operator lets it in, and somebody said why."""
    out = dict(InputFile.objects.filter(excluded_at__isnull=False).values_list("pk", "excluded_reason"))
    read = WorkUnitClaim.objects.filter(input_file_id__in=out, live=True)
    assert not read.exists(), f"excluded files are claimed: {list(read)}"
    restored = set(InputFile.objects.filter(restored_at__isnull=False).values_list("pk", flat=True))
    back = world.checked.get("excluded", set()) - out.keys() - restored
    assert not back, f"excluded files came back: {back}"
    world.checked["excluded"] = set(out)
    blamed = InputFile.objects.filter(pk__in=out, excluded_reason__startswith="mg_").values_list("lfn", flat=True)
    assert set(blamed) <= world.bad_files, f"files were excluded that no job gave up over: {set(blamed) - world.bad_files}"


def _failed(requests: dict[str, Request]) -> None:
    """A request that has ended has no open block, unless one that it waits for needs an operator; of a failed one the manifest is
    asked for."""
    for request in requests.values():
        if request.status not in (S.FAILED, S.ABORTED):
            continue
        blocks = ProcessingBlock.objects.filter(workflow__request=request)
        open_blocks = blocks.filter(status=BlockStatus.OPEN)
        stuck = blocks.filter(status=BlockStatus.FAILED)
        assert stuck.exists() or not open_blocks.exists(), f"{request.request_name} has ended and has open blocks: {open_blocks}"
        if request.status == S.FAILED and Workflow.objects.filter(request=request).exists():
            asked = Effect.objects.filter(request=request, kind="invalidation_manifest")
            assert asked.exists(), f"{request.request_name} has failed and nothing lists its outputs"


def _versions(requests: dict[str, Request]) -> None:
    """A new version begins when the old one has failed, neither before nor never; and there are not too many."""
    for request in requests.values():
        old = requests.get(request.previous_version_request_id or "")
        if old is None:
            continue
        assert len(requests_before(request)) < restart.MAX_VERSIONS, f"{request.request_name} is one version too many"
        if request.status == S.NEW:
            assert old.status == S.STOPPING, f"{request.request_name} waits for {old.request_name}, which is {old.status}"
        elif request.status not in (S.ABORTED, S.CLEANING, S.CLEANED):
            assert old.status in (S.FAILED, S.CLEANING, S.CLEANED), (
                f"{request.request_name} is {request.status} beside its old version, {old.status}"
            )
            assert old.superseded_by_request == request.request_name, old.request_name


def _fates(world: World, requests: dict[str, Request]) -> None:
    """Outputs go from ACTIVE over SUPERSEDED to INVALIDATED, for a reason, and only as the policy says."""
    seen: dict[int, str] = world.checked.get("fates", {})
    rows = OutputDataset.objects.values_list("pk", "name", "state", "workflow__request_id")
    now: dict[int, str] = {}
    for pk, dataset, state, owner in rows:
        now[pk] = state
        old = seen.get(pk, DatasetState.ACTIVE)
        assert state == old or state in _FATES[DatasetState(old)], f"{dataset} went from {old} to {state}"
        newer = _newer(owner, requests)
        replaced = any(request.completed_at for request in newer)
        if state == DatasetState.ACTIVE:
            assert not replaced, f"{dataset} is active, and {[r.request_name for r in newer]} have replaced it"
        elif state == DatasetState.SUPERSEDED:
            assert replaced, f"{dataset} is superseded by nobody"
        else:
            _invalidated(world, pk, dataset)
    world.checked["fates"] = now


def _newer(name: str, requests: dict[str, Request]) -> list[Request]:
    """All later versions of a request."""
    found = [request for request in requests.values() if request.previous_version_request_id == name]
    return [each for one in found for each in (one, *_newer(one.request_name, requests))]


def _invalidated(world: World, pk: int, name: str) -> None:
    """DBS shows nobody its files, and nothing protects it once its rules have been released, which comes after that."""
    owner = OutputDataset.objects.values_list("workflow__request_id", flat=True).get(pk=pk)
    asked = AuditEntry.objects.filter(target=owner, action__in=_TAKE_BACK, outcome="done").exists()
    assert asked or owner in _asked_back(), f"{name} was invalidated, and nobody wanted that"
    files = set(OutputFile.objects.filter(dataset_id=pk).values_list("lfn", flat=True))
    blocks = set(ProcessingBlock.objects.filter(dataset_id=pk).values_list("dbs_block_name", flat=True))
    released = Effect.objects.filter(kind=EffectKind.RUCIO_RELEASE, payload__dataset_id=pk, state=EffectState.DONE)
    if released.exists():
        left = [key for key in world.rucio.rules if key[0] in files | blocks]
        assert not left, f"{name} is invalidated and protected: {left}"
    shown = [lfn for block in blocks & world.dbs.registered.keys() for lfn in world.dbs.registered[block].files]
    assert set(shown) <= world.dbs.invalid, f"{name} is invalidated, DBS shows {set(shown) - world.dbs.invalid}"
    if name in world.dbs.datasets:
        assert world.dbs.access.get(name) == "INVALID", name


#: Operations that take all outputs of a request back.
_TAKE_BACK = ("request_invalidate", "request_clean")


def guard_kept() -> bool:
    """Whether at most half of the sites are banned for all."""
    banned = set(bans_active().filter(workflow__isnull=True).values_list("site_id", flat=True))
    everywhere = set(Site.objects.exclude(status=SiteStatus.DISABLED).values_list("name", flat=True))
    return len(banned & everywhere) * 2 <= len(everywhere)


def check_at_rest(world: World) -> None:
    """Nothing is owed to anybody, and what is protected outside is known inside.

    Raises:
        AssertionError: says what is left.
    """
    owed = Effect.objects.filter(epoch=F("request__epoch")).exclude(state__in=SETTLED_EFFECT)
    assert not owed.exists(), f"still owed: {[(e.key, e.state, e.last_error) for e in owed]}"
    ends = (BlockStatus.ARCHIVED, BlockStatus.GIVEN_UP, BlockStatus.INVALIDATED)
    ended = ProcessingBlock.objects.filter(workflow__request__status__in=(S.FAILED, S.ABORTED)).exclude(status__in=ends)
    taken_back = Effect.objects.filter(kind="rucio_release").values("request_id")
    open_for_ever = ended.exclude(workflow__request__pk__in=taken_back)
    assert not open_for_ever.exists(), f"blocks of ended requests that nobody brings to their end: {open_for_ever}"
    known = set(OutputFile.objects.exclude(rule_id="").values_list("rule_id", flat=True))
    for column in ("tape_rule_id", "source_rule_id"):
        known |= set(ProcessingBlock.objects.exclude(**{column: ""}).values_list(column, flat=True))
    made = {rule for ids in world.rucio.rules.values() for rule in ids}
    assert made == known, f"rules that nobody knows: {made - known}; known and gone: {known - made}"
    _manifests(world)
    losses.check_at_rest(world)
    for name, asked in _asked_back().items():
        left = set(OutputDataset.objects.filter(workflow__request_id=name).values_list("state", flat=True))
        assert left <= {DatasetState.INVALIDATED}, f"{name}: {asked} and its outputs are {left}"


def _manifests(world: World) -> None:
    for request in Request.objects.filter(status=S.FAILED, workflow__isnull=False, epoch=1):
        path = conf().state_dir / "invalidations" / f"{request.request_name}.json"
        document: dict[str, Any] = json.loads(path.read_text())
        listed = {dataset["name"] for dataset in document["datasets"]}
        made = set(OutputDataset.objects.filter(workflow__request=request).values_list("name", flat=True))
        assert listed == made, f"{path}: {listed}"


def _asked_back() -> dict[str, str]:
    """Requests whose outputs somebody wanted back -> who."""
    found: dict[str, str] = defaultdict(str)
    for name in AuditEntry.objects.filter(action__in=_TAKE_BACK, outcome="done").values_list("target", flat=True):
        found[name] = "an operator asked for it"
    requests = {request.request_name: request for request in Request.objects.defer("request_data")}
    for name in requests:
        newer = _newer(name, requests)
        if newer and newer[0].cleanup_policy == "immediate_cleanup" and any(request.completed_at for request in newer):
            found[name] = "the new version cleans up"
    return found
