"""Where a DAG goes: by health, then the lightest; the requester's pools; each schedd's own limits; every reason kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from dags_app.models import DAG, DAGKind, DAGStatus
from dags_app.planning.throttles import Throttles
from requests_app import services
from requests_app.admission.fair_share import Share
from requests_app.admission.placement import Room, Wanted, place, schedd_for
from requests_app.admission.queue import admit
from requests_app.models import Request, RequestStatus, RequestTransition
from requests_app.work.overrides import read_pools
from sites_app.models import BAD_HEALTH, Health, Pool, PoolState, Schedd, ScheddState, SystemicAlert
from tests.support.rows import dag_row, pool_row, request_row, schedd_row, workflow_row
from wms2.errors import FieldRefused

QUEUED = RequestStatus.QUEUED
POOLS = {name: Pool(name=name, collector="c:1", file_system=name) for name in ("cern", "fnal", "off")}
POOLS["off"].state = PoolState.DISABLED


def wanted(units: int, pools: tuple[str, ...] = ()) -> Wanted:
    return Wanted(units, 8, Throttles(units, 100, None, None), Share(10**6, 0, 1), pools=pools)


def unsaved(number: int, pool: str = "cern", slots: int = 100, **fields: Any) -> Schedd:
    return Schedd(pk=number, name=f"s{number}", pool=POOLS[pool], max_dagman_slots=slots, submit_root="/x", **fields)


SCHEDD = st.fixed_dictionaries(
    {
        "pool": st.sampled_from(sorted(POOLS)), "slots": st.integers(2, 60),
        "state": st.sampled_from([*ScheddState, ScheddState.ENABLED, ScheddState.ENABLED]),
        "health": st.sampled_from([*Health, Health.HEALTHY]), "dagmans_others": st.integers(0, 40),
        "owner_dagmans": st.none() | st.integers(0, 60), "unreachable_since": st.none() | st.just(timezone.now()),
    }
)  # fmt: skip


ROWS = st.lists(st.tuples(SCHEDD, st.integers(0, 40)), max_size=6)


@given(ROWS, st.integers(1, 20), st.sampled_from([(), ("cern",), ("fnal",)]))
def test_a_dag_goes_to_the_lightest_of_the_best_class_that_may_have_it_and_each_other_is_told_why_not(
    given_rows: list[tuple[dict[str, Any], int]], units: int, pools: tuple[str, ...]
) -> None:
    room = Room([unsaved(number, **fields) for number, (fields, _) in enumerate(given_rows)])
    for number, (_, used) in enumerate(given_rows):
        room.slots[number] = used
    decision = place(None, room, wanted(units, pools), reserved=None)
    may = [
        schedd for schedd in room.schedds
        if schedd.state == ScheddState.ENABLED and schedd.health not in BAD_HEALTH and schedd.unreachable_since is None
        and schedd.pool_id != "off" and (not pools or schedd.pool_id in pools)
        and room.slots[schedd.pk] + 1 + -(-units // 2) <= min(
            schedd.max_dagman_slots - schedd.dagmans_others, 10**9 if schedd.owner_dagmans is None else schedd.owner_dagmans
        )
    ]  # fmt: skip
    if not may:
        assert decision.schedd is None
        assert all(f"{schedd.name}: " in decision.waits_for for schedd in room.schedds)
        return
    chosen, reported = decision.schedd, decision.placement
    assert chosen in may and reported is not None
    assert chosen.health == Health.HEALTHY or all(schedd.health == Health.BUSY for schedd in may)
    alike = [schedd for schedd in may if schedd.health == chosen.health]
    assert room.slots[chosen.pk] / chosen.dagmans_most == min(room.slots[s.pk] / s.dagmans_most for s in alike)
    assert room.slots[chosen.pk] + decision.slots <= chosen.dagmans_most, "never more DAGMans than it runs"
    assert reported["rejected"].keys() == {schedd.name for schedd in room.schedds} - {chosen.name}  # type: ignore[attr-defined]
    assert all(reported["rejected"].values())  # type: ignore[attr-defined]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=25), st.lists(st.integers(2, 120), min_size=1, max_size=4))
def test_however_many_dags_come_no_schedd_is_given_more_than_its_slots(sizes: list[int], limits: list[int]) -> None:
    room = Room([unsaved(number, slots=slots) for number, slots in enumerate(limits)])
    for units in sizes:
        decision = place(None, room, wanted(units), reserved=None)
        if decision.schedd is not None:
            room.take(decision.schedd, decision.slots)
    assert all(room.left(schedd) >= 0 for schedd in room.schedds)


def waits(request: Request) -> str:
    request.refresh_from_db()
    assert request.status == QUEUED
    return request.waiting_for


@pytest.mark.django_db
def test_others_dagmans_and_the_limit_for_one_owner_leave_that_much_less_room() -> None:
    schedd = schedd_row(max_dagman_slots=500, dagmans_others=480, owner_dagmans=400)
    request = request_row(QUEUED, overrides={"max_merge_groups": 50})
    admit()
    seen = "0 DAGs with 0 of 20 DAGMan slots beside 480 of others, 26 more are needed"
    assert waits(request) == f"a schedd with room: schedd@test: {seen}"
    Schedd.objects.filter(pk=schedd.pk).update(dagmans_others=0, owner_dagmans=20)
    admit()
    assert waits(request).endswith("0 DAGs with 0 of 20 DAGMan slots, 26 more are needed")
    Schedd.objects.filter(pk=schedd.pk).update(owner_dagmans=60)
    assert admit() == 1


@pytest.mark.django_db
def test_the_choice_and_why_the_others_were_not_taken_are_in_the_history() -> None:
    heavy = schedd_row("heavy", max_dagman_slots=1000)
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=heavy, merge_groups=99)
    schedd_row("light", max_dagman_slots=500)
    schedd_row("busy", health=Health.BUSY, health_reason="its duty cycle is 0.99")
    schedd_row("ill", health=Health.DEGRADED, health_reason="it has stalled")
    schedd_row("elsewhere", pool="off")
    Pool.objects.filter(pk="off").update(state=PoolState.DISABLED)
    request = request_row(QUEUED)
    admit()
    reported = RequestTransition.objects.get(request=request).evidence
    assert (reported["chosen"], reported["why"]) == ("light", "healthy, 0 DAGs with 0 of 500 DAGMan slots")
    assert reported["rejected"] == {
        "heavy": "not the lightest, or not reserved: 1 DAGs with 100 of 1000 DAGMan slots",
        "busy": "busy: its duty cycle is 0.99", "ill": "degraded: it has stalled", "elsewhere": "pool off is disabled",
    }  # fmt: skip


@pytest.mark.django_db
def test_a_busy_schedd_is_the_last_choice_and_still_one() -> None:
    schedd_row("busy", health=Health.BUSY)
    request = request_row(QUEUED)
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_schedd is not None and request.reserved_schedd.name == "busy"


@pytest.mark.django_db
def test_a_request_waits_for_its_own_pools_until_they_are_changed() -> None:
    schedd_row("here", pool="cern")
    schedd_row("there", pool="fnal", state=ScheddState.DRAINING)
    request = request_row(QUEUED, overrides={"pools": ["fnal"]})
    admit()
    assert waits(request) == "a schedd with room in fnal: here: of pool cern, not of fnal; there: state draining"
    services.request_set_pools(request=request, actor="olga", reason="fnal is drained", pools=["fnal", "cern"])
    assert admit() == 1
    request.refresh_from_db()
    assert request.reserved_schedd.name == "here"  # type: ignore[union-attr]


@pytest.mark.django_db
def test_what_was_planned_for_one_file_system_goes_to_no_schedd_that_does_not_see_it() -> None:
    home = schedd_row("home", pool="cern", max_dagman_slots=500)
    schedd_row("twin", pool="cern", max_dagman_slots=500)
    schedd_row("away", pool="fnal", max_dagman_slots=9000)
    workflow = workflow_row(request_row(RequestStatus.PLANNING, reserved_schedd=home, reserved_slots=5))
    dag = dag_row(workflow, DAGStatus.READY, schedd=None, merge_groups=4, total_work_units=4)
    Schedd.objects.filter(pk=home.pk).update(health=Health.DEGRADED, health_reason="stalled")
    found = schedd_for(workflow.request, dag)
    assert found.schedd is not None and found.schedd.name == "twin"
    Schedd.objects.filter(name="twin").update(state=ScheddState.DISABLED)
    assert schedd_for(workflow.request, dag).schedd is None


@pytest.mark.django_db
def test_a_rescue_leaves_a_degraded_schedd_for_one_that_sees_its_directory_and_waits_for_one_otherwise() -> None:
    home = schedd_row("home", health=Health.DEGRADED, health_reason="stalled")
    workflow = workflow_row(request_row(QUEUED))
    dag_row(workflow, DAGStatus.STOPPED, schedd=home, submitted_at=timezone.now(), kind=DAGKind.FRESH)
    admit()
    assert waits(workflow.request).endswith("home: degraded: stalled")
    schedd_row("twin")
    assert admit() == 1
    workflow.request.refresh_from_db()
    assert workflow.request.reserved_schedd.name == "twin"
    assert DAG.objects.count() == 1


@pytest.mark.django_db
def test_what_is_planned_is_not_submitted_while_trouble_lasts_that_is_not_its_schedds() -> None:
    home = schedd_row(max_dagman_slots=500)
    workflow = workflow_row(request_row(RequestStatus.PLANNING, reserved_schedd=home, reserved_slots=5))
    dag = dag_row(workflow, DAGStatus.READY, schedd=None, merge_groups=4, total_work_units=4)
    SystemicAlert.objects.create(holds=True, reason="all are silent", began_at=timezone.now())
    assert schedd_for(workflow.request, dag).waits_for == "the end of trouble that is not theirs: all are silent"


@pytest.mark.django_db
def test_a_pool_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    pool_row("cern")
    pool_row("fnal")
    assert read_pools(["cern", "cern"]) == ["cern"]
    with pytest.raises(FieldRefused, match="there is no pool desy; known: cern, fnal"):
        read_pools(["cern", "desy"])
