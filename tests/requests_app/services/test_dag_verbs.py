"""Operations on a DAG, over REST and in the admin: the same service, a reason, the audit, and each may be repeated."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGHistory, DAGKind, DAGStatus
from dags_app.services.stop import RESUME_SECONDS
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import StopMode, request_hold, request_stop
from tests.support.html import links, text
from tests.support.problems import problem
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
WHY = {"reason": "its site has no power"}
ADMIN = "/admin/dags_app/dag"


@pytest.fixture(name="olga")
def _olga(db: Any) -> User:
    return User.objects.create_superuser("olga")


@pytest.fixture(name="rest")
def _rest(olga: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(olga)
    return client


@pytest.fixture(name="browser")
def _browser(olga: User) -> Client:
    client = Client()
    client.force_login(olga)
    return client


@once
def running(world: World) -> DAG:
    request = world.request(documents.generation(200))
    world.cycle()
    world.cycle()
    dag = DAG.objects.get(workflow__request=request)
    assert dag.status == DAGStatus.RUNNING
    return dag


def request_of(dag: DAG) -> Request:
    return Request.objects.get(workflow__pk=dag.workflow_id)


def url(dag: DAG, action: str) -> str:
    return f"/api/v1/dags/{dag.pk}/{action}"


def audits(dag: DAG) -> list[tuple[str, str, str, str]]:
    rows = AuditEntry.objects.filter(target=str(dag.pk), target_type="dag").order_by("id")
    return list(rows.values_list("actor", "action", "outcome", "reason"))


def ask(browser: Client, action: str, dag: DAG) -> str:
    response = browser.get(f"{ADMIN}/verb/{action}/", {"id": dag.pk})
    assert response.status_code == 200, response.content[:300]
    return text(response.content.decode())


def do(browser: Client, action: str, dag: DAG, seen: str, reason: str = WHY["reason"]) -> Any:
    return browser.post(f"{ADMIN}/verb/{action}/", {"id": dag.pk, "seen": seen, "reason": reason})


def fresh(dag: DAG) -> DAG:
    return DAG.objects.get(pk=dag.pk)


def test_a_dag_is_held_and_released_over_rest_and_each_may_be_repeated(world: World, rest: APIClient) -> None:
    dag = running(world)
    for _ in range(2):
        assert rest.post(url(dag, "hold"), WHY).status_code == 202
    assert world.job_of(request_of(dag)).held_because == f"olga: {WHY['reason']}"
    world.cycle()
    request = request_of(dag)
    assert (request.status, request.alert_code) == (S.ACTIVE, "dagman_held")
    assert WHY["reason"] in request.waiting_for
    for _ in range(2):
        assert rest.post(url(dag, "release"), {"reason": "power is back"}).status_code == 202
    world.cycle()
    assert "work units done" in request_of(dag).waiting_for
    assert [entry[:3] for entry in audits(dag)] == [
        ("olga", f"dag_{action}", "done") for action in ("hold", "hold", "release", "release")
    ]
    reported = DAGHistory.objects.filter(dag=dag, event_type__in=("dag_hold", "dag_release")).order_by("id")
    assert [(row.event_type, row.detail["jobs"]) for row in reported] == [
        ("dag_hold", 1), ("dag_hold", 0), ("dag_release", 1), ("dag_release", 0)
    ]  # fmt: skip


def test_the_admin_says_what_a_hold_does_asks_why_and_does_it(world: World, browser: Client) -> None:
    dag = running(world)
    said = ask(browser, "hold", dag)
    assert f"DAGMan job {dag.dagman_cluster_id} at schedd@test" in said
    assert "Jobs that run go on." in said
    assert not world.job_of(request_of(dag)).held_because, "asking does nothing"
    assert do(browser, "hold", dag, "running", reason=" ").status_code == 400
    response = do(browser, "hold", dag, "running")
    assert (response.status_code, response["Location"]) == (302, f"{ADMIN}/{dag.pk}/change/")
    assert world.job_of(request_of(dag)).held_because == f"olga: {WHY['reason']}"
    page = text(browser.get(response["Location"]).content.decode())
    assert "It is Running, on hold now." in page
    assert do(browser, "release", dag, "running").status_code == 409, "it is on hold by now, which the page did not show"
    assert do(browser, "release", dag, "running held").status_code == 302
    assert not world.job_of(request_of(dag)).held_because
    assert audits(dag) == [("olga", "dag_hold", "done", WHY["reason"]), ("olga", "dag_release", "done", WHY["reason"])]


def test_a_silent_schedd_is_told_and_audited_and_nothing_is_changed(world: World, browser: Client, rest: APIClient) -> None:
    dag = running(world)
    world.schedd.silent = True
    problem(rest.post(url(dag, "hold"), WHY), 503, "service_unavailable")
    response = do(browser, "hold", dag, "running")
    assert response.status_code == 409
    assert "htcondor hold_tree" in text(response.content.decode())
    assert [entry[1:3] for entry in audits(dag)] == [("dag_hold", "refused")] * 2
    assert fresh(dag).observed["job_status"] == 2


def test_a_removed_dag_holds_its_request_and_its_rescue_goes_on(world: World, rest: APIClient) -> None:
    dag = running(world)
    for _ in range(2):
        assert rest.post(url(dag, "remove"), WHY).status_code == 202
    world.cycle()
    world.cycle()
    request = request_of(dag)
    assert (request.status, request.hold_code, request.hold_reason) == (S.HELD, HoldCode.OPERATOR, WHY["reason"])
    assert fresh(dag).status == DAGStatus.STOPPED
    assert rest.post(url(dag, "remove"), WHY).status_code == 202, "the answer may have been lost"
    for _ in range(2):
        assert rest.post(url(dag, "rescue"), {"reason": "power is back"}).status_code == 202
    world.cycle()
    world.cycle()
    rescue = DAG.objects.get(parent_dag=dag)
    assert (rescue.kind, rescue.submit_dir) == (DAGKind.STOP_RESCUE, dag.submit_dir)
    world.schedd.end(world.job_of(request), End.FINISHED)
    for _ in range(4):
        world.cycle()
    assert request_of(dag).status == S.COMPLETED
    actions = [entry[1:3] for entry in audits(dag)]
    assert actions == [("dag_remove", "done")] * 3 + [("dag_rescue", "done")]


def test_a_dag_on_hold_is_let_run_before_it_is_removed_so_that_a_rescue_file_is_left(world: World, rest: APIClient) -> None:
    dag = running(world)
    rest.post(url(dag, "hold"), WHY)
    rest.post(url(dag, "remove"), WHY)
    world.evaluate(request_of(dag))
    assert "to run again, so that its removal leaves a rescue file" in request_of(dag).waiting_for
    assert [job.held_because for job in world.schedd.live] == [""]
    for _ in range(3):
        world.cycle()
    assert (request_of(dag).status, world.schedd.live) == (S.HELD, [])
    assert rest.post(url(dag, "rescue"), WHY).status_code == 202


def test_a_dag_that_stays_on_hold_is_removed_all_the_same(world: World, rest: APIClient) -> None:
    dag = running(world)
    rest.post(url(dag, "hold"), WHY)
    rest.post(url(dag, "remove"), WHY)
    world.schedd.release_tree = lambda job, reason: 0  # type: ignore[method-assign]
    world.cycle()
    assert len(world.schedd.live) == 1
    world.clock.advance(RESUME_SECONDS + 1)
    for _ in range(3):
        world.cycle()
    assert (request_of(dag).status, world.schedd.live) == (S.HELD, [])


def test_a_dag_on_hold_that_has_been_drained_for_long_is_let_run_before_it_is_removed(world: World, rest: APIClient) -> None:
    dag = running(world)
    request_stop(request=request_of(dag), actor="olga", reason="because", mode=StopMode.DRAIN)
    rest.post(url(dag, "hold"), WHY)
    world.cycle()
    world.clock.advance(RESUME_SECONDS + 1)
    request_hold(request=request_of(dag), actor="olga", reason="because")
    for _ in range(4):
        world.cycle()
    assert (request_of(dag).status, world.schedd.live) == (S.HELD, [])
    assert rest.post(url(dag, "rescue"), WHY).status_code == 202


def test_a_dag_on_hold_is_aborted_at_once(world: World, rest: APIClient) -> None:
    dag = running(world)
    rest.post(url(dag, "hold"), WHY)
    rest.delete(f"/api/v1/requests/{request_of(dag).request_name}?reason=wrong")
    for _ in range(3):
        world.cycle()
    assert (request_of(dag).status, world.schedd.live) == (S.ABORTED, [])


def test_the_admin_removes_and_rescues_and_names_what_becomes_of_the_request(world: World, browser: Client) -> None:
    dag = running(world)
    name = request_of(dag).request_name
    said = ask(browser, "remove", dag)
    assert f"{name} is held:" in said
    assert "jobs that run now are lost" in said
    assert do(browser, "remove", dag, "running").status_code == 302
    world.cycle()
    world.cycle()
    assert request_of(dag).status == S.HELD
    said = ask(browser, "rescue", dag)
    assert f"{name} is released" in said
    assert "2 work units run again, 0 are done and stay registered." in said
    assert do(browser, "rescue", dag, "stopped").status_code == 302
    assert request_of(dag).status == S.QUEUED
    assert audits(dag)[-1] == ("olga", "dag_rescue", "done", WHY["reason"])


def test_verbs_that_do_not_fit_are_refused_with_words_and_audited(world: World, browser: Client, rest: APIClient) -> None:
    dag = running(world)
    reported = problem(rest.post(url(dag, "rescue"), WHY), 409, "invalid_transition")
    assert "only the DAG of a held request can be rescued" in reported["detail"]
    assert "only the DAG of a held request can be rescued" in ask(browser, "rescue", dag)
    world.schedd.end(world.job_of(request_of(dag)), End.FINISHED)
    for _ in range(4):
        world.cycle()
    for action in ("hold", "release", "remove"):
        problem(rest.post(url(dag, action), WHY), 409, "invalid_transition")
        assert "It is Completed; it is not in the queue of a schedd." in ask(browser, action, dag)
    assert [entry[1:3] for entry in audits(dag)] == [
        (f"dag_{action}", "refused") for action in ("rescue", "hold", "release", "remove")
    ]


def test_a_dags_page_and_its_requests_page_offer_the_verbs_that_apply(world: World, browser: Client) -> None:
    dag = running(world)

    def offered(page: str, of: str) -> list[str]:
        found = [link for link in links(browser.get(page).content.decode()) if f"{of}/verb/" in link]
        return [link.split("/verb/")[1].split("/")[0] for link in found]

    assert offered(f"{ADMIN}/{dag.pk}/change/", ADMIN) == ["hold", "release", "remove"]
    assert offered(f"/requests/{request_of(dag).request_name}/", ADMIN) == ["hold"]
    do(browser, "hold", dag, "running")
    assert offered(f"/requests/{request_of(dag).request_name}/", ADMIN) == ["release", "release"], "the way back and the button"


@pytest.mark.parametrize("action", ["hold", "release", "remove", "rescue"])
def test_a_reason_is_needed(world: World, rest: APIClient, action: str) -> None:
    dag = running(world)
    problem(rest.post(url(dag, action), {}), 400, "invalid")
    assert audits(dag) == []
