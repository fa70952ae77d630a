"""The worker is killed at every kill point; then there is one DAGMan job, one block with its two rules, and COMPLETED."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from dags_app.models import DAG, LIVE_DAG
from outputs_app.blocks.placements import placement_set
from outputs_app.models import REPORTS, EffectKind, Placement
from requests_app.models import RequestStatus
from requests_app.services import request_abort
from tests.support.faults import fault
from tests.support.inputs import seeded_input, small_reprocessing
from tests.support.outcomes import assert_aborted, assert_completed_once, ended, imported, status
from tests.support.stack import worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
SUBMISSION = ("submit.claimed", "submit.called", "submit.recorded")
#: The end of what protects a block until it is on tape: tests/outputs_app/test_storage_rules.py.
LATER = (EffectKind.RUCIO_UNPROTECT,)
INVALIDATION = (
    EffectKind.INVALIDATION_MANIFEST, EffectKind.RUCIO_RELEASE, EffectKind.DBS_INVALIDATE, EffectKind.FILES_INVALIDATE,
)  # fmt: skip
REGISTRATION = [kind for kind in EffectKind if kind not in (*INVALIDATION, *LATER, *REPORTS)]  # those: test_reqmgr2
ON_THE_WAY = (
    "import.claimed", "import.called", "import.recorded", "plan.claimed", "plan.called", "plan.recorded", *SUBMISSION,
    "poll.called", "poll.recorded",
    "register.claimed", "register.recorded",
    *(f"{kind}.{point}" for kind in REGISTRATION for point in ("claimed", "called", "recorded")),
)  # fmt: skip


@fault(
    "WMS2 killed while submitting",
    done="SIGKILL before, after and behind the submission",
    spec="docs/crash-points.md",
    afterwards="found by its id and adopted: one DAGMan job, COMPLETED once",
)
@pytest.mark.parametrize("point", SUBMISSION)
@pytest.mark.deep(
    "tests/pool/test_crash_points.py::test_killed_once_at_every_point_of_its_way_the_request_completes_as_if_nothing_had_happened"
)
def test_killed_while_submitting_the_request_completes_with_one_dagman_job(ready: None, tmp_path: Path, point: str) -> None:
    request = imported(events=20)
    with worker(WMS2_CRASH_AT=point, WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:
        running.wait(lambda: running.was_killed, seconds=60)
        assert DAG.objects.filter(workflow__request=request, status__in=LIVE_DAG).count() == 1
        running.start()
        running.wait(lambda: ended(request), seconds=180)
    assert_completed_once(request)


@fault(
    "WMS2 killed at every point",
    done="SIGKILL once at each kill point from import to completion, two workers",
    spec="docs/crash-points.md",
    afterwards="one DBS block each with a rule at its RSE and one on tape, COMPLETED as if nothing had happened",
)
def test_killed_once_at_every_point_of_its_way_the_request_completes_as_if_nothing_had_happened(
    ready: None, tmp_path: Path
) -> None:
    document = small_reprocessing(seeded_input(tmp_path, files_per_site=1))  # only input has something to import
    document["createRequest"]["Campaign"] = campaign = f"Crash{uuid.uuid4().hex[:8]}"
    on_disk = {"disk_expression": "T1_US_FNAL_Disk", "actor": "tester", "reason": "one container rule more"}
    placement_set(row=Placement(), campaign=campaign, **on_disk)
    request = imported(document)
    mark = tmp_path / "mark"
    crash = {"WMS2_CRASH_AT": ",".join(ON_THE_WAY), "WMS2_CRASH_MARK": str(mark)}

    def over() -> bool:
        second.revive()
        return ended(request)

    with worker(**crash, WMS2_NODE="one") as first, worker(**crash, WMS2_NODE="two") as second:  # one goes on at once
        first.wait(over, seconds=600, restart=True)
    assert set(mark.read_text().split()) == set(ON_THE_WAY), "every kill point was met"
    assert_completed_once(request)


@fault(
    "WMS2 killed while aborting",
    done="SIGKILL before and after the removal is asked for",
    spec="docs/design/model.md, Stop intents",
    afterwards="ABORTED, nothing runs, nothing stays claimed",
)
def test_killed_before_and_after_its_removal_the_request_ends_aborted_and_nothing_runs(ready: None, tmp_path: Path) -> None:
    request, mark = imported(), tmp_path / "mark"
    with worker(WMS2_CRASH_AT="stop.claimed,stop.called", WMS2_CRASH_MARK=str(mark)) as running:
        running.wait(lambda: status(request) == RequestStatus.ACTIVE, seconds=60)
        request.refresh_from_db()
        request_abort(request=request, actor="tester", reason="for the test")
        running.wait(lambda: ended(request), seconds=120, restart=True)
    assert mark.read_text().split() == ["stop.claimed", "stop.called"]
    assert_aborted(request)
