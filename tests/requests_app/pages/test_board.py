"""The list of requests: filters and order stand in the address, operations on many, views that people keep."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import FailureGroup
from requests_app.lifecycle.failing import mark_failing
from requests_app.models import HoldCode, KeptAccount, Progress, ProgressSample, Request, RequestStatus, RequestWatch, SavedView
from requests_app.pages.board import Speed, expected_end
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.scene import Scene
from wms2.models import AuditEntry, BulkRun
from wms2.work.bulk import bulk_go_on

pytestmark = pytest.mark.django_db
S = RequestStatus
#: Beside session, user and roles: lease; counts, views; the page; its units, its work, its samples.
STATEMENTS = 7


def shown(client: Client, path: str = "/requests/", part: str | None = None) -> str:
    response = client.get(path)
    assert response.status_code == 200, response.content[:500]
    return text(response.content.decode(), part)


def names_on(client: Client, query: str = "") -> list[str]:
    found = links(client.get(f"/requests/{query}").content.decode(), "part-lines")
    return [link.split("/")[2] for link in found if link.startswith("/requests/") and link.count("/") == 3]


def test_a_line_shows_progress_by_work_units_and_what_it_waits_for(reader: Client, built: Scene) -> None:
    said = shown(reader, f"/requests/?search={built.active.request_name}", part="part-lines")
    assert "197 of 320" in said
    assert "DAGMan job: 197 of 320 work units done" in said
    assert "19 h" in said


def test_counts_by_status_link_to_their_lists(reader: Client, built: Scene) -> None:
    html = reader.get("/requests/?campaign=RunIII2024Summer24").content.decode()
    assert "Queued 2" in text(html, "part-statuses")
    assert "?campaign=RunIII2024Summer24&status=queued" in links(html, "part-statuses")
    assert "Failed" not in text(html, "part-statuses"), "statuses without requests are left out"


def test_empty_fields_of_the_form_do_not_stay_in_the_address(reader: Client) -> None:
    response = reader.get("/requests/?search=&campaign=Run3&status=&ordering=")
    assert (response.status_code, response["Location"]) == (302, "?campaign=Run3")


@pytest.mark.parametrize(
    ("query", "word"), [("status=sleeping", "status"), ("ordering=request_data", "ordering"), ("cursor=made-up", "cursor")]
)
def test_a_wrong_address_is_told_and_shows_no_list(reader: Client, built: Scene, query: str, word: str) -> None:
    response = reader.get(f"/requests/?{query}")
    assert response.status_code == 400
    said = text(response.content.decode(), "part-lines")
    assert said.startswith(word)
    assert built.active.request_name not in said


def test_pages_walk_through_all_rows_once(reader: Client) -> None:
    names = {request_row(S.COMPLETED).request_name for _ in range(120)}
    found: set[str] = set()
    path, pages = "/requests/?status=completed", 0
    while path:
        html = reader.get(path).content.decode()
        found |= names.intersection(text(html, "part-lines").split())
        path = next((f"/requests/{link}" for link in links(html, "part-lines") if "cursor=" in link), "")
        pages += 1
    assert (found, pages) == (names, 3)


def test_it_begins_with_those_that_need_a_person_then_those_that_fail_the_longest_in_their_status_first(reader: Client) -> None:
    now = timezone.now()

    def row(name: str, status: RequestStatus, hours: int, **fields: Any) -> Request:
        return request_row(status, request_name=name, status_since=now - timedelta(hours=hours), **fields)

    row("over", S.COMPLETED, 90)
    row("runs", S.ACTIVE, 5)
    row("runs_long", S.ACTIVE, 50)
    failing = row("fails", S.ACTIVE, 1)
    row("held", S.HELD, 2, hold_code=HoldCode.RESCUES, hold_reason="3 of 3")
    row("alerted", S.ACTIVE, 3, alert_code="all_failing")
    workflow = workflow_row(failing)
    dag_row(workflow)
    group = FailureGroup.objects.create(workflow=workflow, category="data", code=8021, first_at=now, last_at=now)
    mark_failing(transaction.atomic)
    assert names_on(reader) == ["alerted", "held", "fails", "runs_long", "runs", "over"]
    assert names_on(reader, "?failing=true") == ["fails"]
    assert "failing" in shown(reader, "/requests/?failing=true", "part-lines")
    assert names_on(reader, "?ordering=-request_name")[0] == "runs_long"
    FailureGroup.objects.filter(pk=group.pk).update(last_at=now - timedelta(hours=4))
    mark_failing(transaction.atomic)
    assert names_on(reader, "?failing=true") == []


def test_heads_of_columns_sort_one_way_then_the_other(reader: Client) -> None:
    request_row()
    html = reader.get("/requests/?campaign=&ordering=-priority", follow=True).content.decode()
    assert 'aria-sort="descending"' in html
    found = [link for link in links(html, "part-lines") if "ordering=" in link]
    assert "?ordering=priority" in found and "?ordering=request_name" in found
    for link in found:
        assert reader.get(f"/requests/{link}").status_code == 200


def test_progress_is_of_the_events_asked_for_with_an_estimate_of_the_end(reader: Client) -> None:
    request, now = request_row(S.ACTIVE), timezone.now()
    workflow = workflow_row(request)
    numbers = {"all_events": 4000, "done_events": 1000}
    KeptAccount.objects.create(workflow=workflow, basis="a", numbers=numbers, counted_at=now, took_seconds=0.1)
    counters = {"units_failed": 0, "jobs_idle": 0, "jobs_running": 1, "jobs_held": 0, "units": 20}
    begun = now - timedelta(hours=1)
    Progress.objects.create(request=request, at=now, first_at=begun, peak_running=1, job_seconds=1, units_done=10, **counters)
    ProgressSample.objects.create(request=request, at=begun, units_done=0, **counters)
    said = shown(reader, part="part-lines")
    assert "1,000 of 4,000 events" in said
    assert "may end in 2 h 59 min" in said or "may end in 3 h" in said, "what is not planned yet counts by events"
    held = {"status": S.HELD, "hold_code": HoldCode.THRESHOLD, "hold_reason": "many failed"}
    for stands in (held, {"status": S.STOPPING, "hold_code": "", "stop_intent": "abort"}):
        Request.objects.filter(pk=request.pk).update(**stands)
        assert "may end" not in shown(reader, part="part-lines"), "it does not go on"


def test_no_end_is_expected_of_what_does_not_go_on() -> None:
    now = timezone.now()
    assert expected_end(Speed(units=20, done=10, before=10, since=now - timedelta(hours=6)), 0.5, now) is None
    assert expected_end(Speed(units=20, done=20, before=0, since=now - timedelta(hours=6)), 1.0, now) is None
    assert expected_end(Speed(units=10**9, done=1, before=0, since=now - timedelta(hours=6)), 0.0, now) is None


@pytest.mark.parametrize("many", [3, 60])
def test_it_costs_the_same_however_many_rows(operator: Client, many: int, django_assert_num_queries: Any) -> None:
    now = timezone.now()
    counters = dict.fromkeys(("units", "units_done", "units_failed", "jobs_idle", "jobs_running", "jobs_held"), 1)
    for index in range(many):
        request = request_row(S.HELD if index % 2 else S.ACTIVE)
        unit_row(dag_row(workflow_row(request)))
        Progress.objects.create(request=request, at=now, first_at=now, peak_running=1, job_seconds=1, **counters)
    with django_assert_num_queries(3 + STATEMENTS) as captured:
        operator.get("/requests/")
    for query in captured.captured_queries:
        for column in ('"request_data"', '"config_data"', '"psets"', '"payload"'):
            assert column not in query["sql"]


def test_all_requests_of_a_filter_are_released_in_four_clicks_and_the_run_is_left_and_found_again(
    operator: Client, reader: Client
) -> None:
    rows = [request_row(S.HELD, hold_code=HoldCode.RESCUES, hold_reason="3 of 3") for _ in range(60)]
    request_row(S.ACTIVE)
    html = operator.get("/requests/?status=held").content.decode()  # the first click
    assert html.index('value="release"') < html.index('value="abort"'), "what a held request usually wants comes first"
    asked = "/bulk/new/?status=held&operation=release&which=filter"  # the second
    page = operator.get(asked)
    said = text(page.content.decode())
    assert "Release: 60 requests" in said and "Release applies to 60 of 60 now." in said
    assert operator.post(asked, {"expected": "60"}).status_code == 400, "a reason is asked for"
    answer = operator.post(asked, {"expected": "60", "reason": "the sites are back"})  # a reason, and the third
    run = BulkRun.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/bulk/{run.pk}/")
    assert "0 of 60 settled. It goes on without this page." in shown(operator, answer["Location"])
    Request.objects.filter(pk=rows[0].pk).update(status=S.FAILED, hold_code="", hold_reason="")
    bulk_go_on(seconds=60)
    said = shown(reader, f"/bulk/{run.pk}/?result=refused", "part-items")
    assert rows[0].request_name in said and "it is Failed now" in said
    assert "Ended" in shown(reader, f"/bulk/{run.pk}/") and "Release: 60 (request)" in shown(reader, "/bulk/")
    assert Request.objects.filter(status=S.HELD).count() == 0
    assert reader.get(f"/bulk/{run.pk}/?result=lost").status_code == 400


def test_selected_requests_are_acted_on_and_those_that_refuse_are_counted_before(operator: Client) -> None:
    held, active = request_row(S.HELD, hold_code=HoldCode.RESCUES, hold_reason="3 of 3"), request_row(S.ACTIVE)
    asked = f"/bulk/new/?operation=release&which=selected&id={held.pk}&id={active.pk}"
    said = shown(operator, asked)
    assert "Release applies to 1 of 2 now." in said and "It is Active; only a held request can be released. 1" in said
    request_row(S.HELD)
    assert operator.post(asked, {"expected": "3", "reason": "b"}).status_code == 409, "others were seen"
    assert operator.post(asked, {"expected": "2", "reason": "b"}).status_code == 302
    bulk_go_on(seconds=60)
    assert dict(BulkRun.objects.get().items.values_list("name", "result")) == {
        held.request_name: "done", active.request_name: "refused",
    }  # fmt: skip


def form_of(page: HttpResponse, **given: str) -> dict[str, str]:
    hidden = re.findall(r'<input type="hidden" name="(expected|meant|run)" value="([^"]*)">', page.content.decode())
    return {**dict(hidden), "reason": "the sites are back", **given}


def test_a_zero_that_is_typed_for_many_requests_is_not_taken_for_nothing(operator: Client) -> None:
    request_row(S.HELD)
    asked = "/bulk/new/?operation=release&which=filter&status=held"
    assert operator.post(asked, form_of(operator.get(asked), retry_processing="0", pass_fraction="0")).status_code == 302
    data = BulkRun.objects.get().data
    assert (data["retry_processing"], data["pass_fraction"], "memory_mb" in data) == (0, 0, False)


def test_other_requests_than_were_shown_are_not_acted_on_even_if_they_are_as_many(operator: Client) -> None:
    seen = request_row(S.HELD)
    asked = "/bulk/new/?operation=abort&which=filter&status=held"
    given = form_of(operator.get(asked))
    Request.objects.filter(pk=seen.pk).update(status=S.ACTIVE)
    other = request_row(S.HELD)
    answer = operator.post(asked, given)
    assert (answer.status_code, "other rows are meant by now" in text(answer.content.decode())) == (409, True)
    assert not BulkRun.objects.exists()
    assert operator.post(asked, form_of(answer)).status_code == 302, "looked at again"
    assert BulkRun.objects.get().items.get().name == other.request_name


def test_a_form_that_is_sent_twice_begins_one_run(operator: Client) -> None:
    request_row(S.HELD)
    asked = "/bulk/new/?operation=release&which=filter&status=held"
    given = form_of(operator.get(asked))
    answers = [operator.post(asked, given) for _ in range(2)]
    run = BulkRun.objects.get()
    bulk_go_on(seconds=60)
    answers.append(operator.post(asked, given))
    assert [(each.status_code, each["Location"]) for each in answers] == [(302, f"/bulk/{run.pk}/")] * 3
    request_row(S.HELD)
    assert operator.post(asked, form_of(operator.get(asked))).status_code == 302
    assert BulkRun.objects.count() == 2, "asked for anew"


def test_an_operation_on_many_names_what_is_meant_and_is_for_its_roles(operator: Client, reader: Client) -> None:
    for query, why in (
        ("which=filter", "without one, all requests would be meant"),
        ("which=selected", "No row is selected"),
        ("which=selected&id=made-up", "no key of a request"),
        ("which=filter&status=sleeping", "status"),
    ):
        answer = operator.get(f"/bulk/new/?operation=hold&{query}")
        assert (answer.status_code, why in text(answer.content.decode())) == (400, True), query
    assert operator.get("/bulk/new/?operation=nothing&status=held").status_code == 404
    assert reader.get("/bulk/new/?operation=hold&status=held").status_code == 403
    request_row()
    offered = [client.get("/requests/").content.decode() for client in (operator, reader)]
    assert ['value="release"' in html for html in offered] == [True, False]
    assert not BulkRun.objects.exists()


def test_views_are_kept_shared_replaced_and_removed_by_their_owner_on_the_page_and_over_rest(
    operator: Client, reader: Client
) -> None:
    kept = reader.post("/saved-views/", {"name": "mine", "query": "status=held&ordering=-priority&cursor=x"})
    assert parse_qs(urlsplit(kept["Location"]).query) == {"status": ["held"], "ordering": ["-priority"]}
    reader.post("/saved-views/", {"name": "for all", "query": "campaign=Run3", "shared": "on"})
    reader.post("/saved-views/", {"name": "mine", "query": "status=active"})
    assert dict(SavedView.objects.values_list("name", "query")) == {"mine": "status=active", "for all": "campaign=Run3"}
    assert "mine" in shown(reader, part="part-views") and "/requests/?status=active" in links(
        reader.get("/requests/").content.decode()
    )
    others = shown(operator, part="part-views")
    assert "for all" in others and "mine" not in others
    reader.post("/saved-views/", {"name": "wrong", "query": "status=sleeping"})
    assert "Not kept: query: status:" in shown(reader)

    rita, olga = (APIClient() for _ in range(2))
    rita.force_authenticate(User.objects.get(username="rita"))
    olga.force_authenticate(User.objects.get(username="olga"))
    seen = olga.get("/api/v1/saved-views").json()["results"]
    assert [(row["name"], row["owner"], row["query"], row["shared"]) for row in seen] == [
        ("for all", "rita", "campaign=Run3", True)
    ]
    assert olga.delete(f"/api/v1/saved-views/{seen[0]['id']}").status_code == 404, "another's"
    made = rita.post("/api/v1/saved-views", {"name": "rest", "query": "needs=all_failing"}, format="json")
    assert made.status_code == 201 and rita.delete(f"/api/v1/saved-views/{made.json()['id']}").status_code == 204
    assert rita.post("/api/v1/saved-views", {"name": "rest", "query": "shape=round"}, format="json").status_code == 400
    mistyped = {"name": "rest", "query": "needs=all_failing", "share": True}
    assert rita.post("/api/v1/saved-views", mistyped, format="json").status_code == 400, "it would be kept, and not shared"
    assert operator.post(f"/saved-views/{seen[0]['id']}/delete/").status_code == 404
    assert reader.post(f"/saved-views/{seen[0]['id']}/delete/").status_code == 302
    assert [view.name for view in SavedView.objects.all()] == ["mine"]


def test_the_audit_says_who_kept_changed_shared_and_removed_a_view(reader: Client) -> None:
    def audited() -> list[tuple[str, str]]:
        rows = AuditEntry.objects.filter(target_type="saved_view", actor="rita", target="mine").order_by("id")
        return list(rows.values_list("action", "outcome"))

    held = {"name": "mine", "query": "status=held"}
    for given in (held, {"name": "mine", "query": "status=active"}, held | {"shared": "on"}, held):
        reader.post("/saved-views/", given)
    reader.post("/saved-views/", {"name": "mine", "query": "status=sleeping"})
    reader.post(f"/saved-views/{SavedView.objects.get().pk}/delete/")
    expected = [
        ("saved_view_create", "done"), ("saved_view_change", "done"), ("saved_view_share", "done"),
        ("saved_view_unshare", "done"), ("saved_view_change", "refused"), ("saved_view_delete", "done"),
    ]  # fmt: skip
    assert audited() == expected
    changed = AuditEntry.objects.get(action="saved_view_share")
    before = {"query": "status=active", "shared": False}
    assert changed.evidence == {"query": "status=held", "shared": True, "before": before}

    rita = APIClient()
    rita.force_authenticate(User.objects.get(username="rita"))
    made = rita.post("/api/v1/saved-views", held, format="json")
    rita.delete(f"/api/v1/saved-views/{made.json()['id']}")
    assert audited()[len(expected) :] == [("saved_view_create", "done"), ("saved_view_delete", "done")]


def test_ones_own_views_stand_before_those_that_others_share_however_many(operator: Client, reader: Client) -> None:
    olga = User.objects.get(username="olga")
    SavedView.objects.bulk_create(SavedView(owner=olga, name=f"a{n}", query="mine=1", shared=True) for n in range(100))
    reader.post("/saved-views/", {"name": "mine", "query": "status=held"})
    assert "mine" in shown(reader, part="part-views")


def test_my_requests_are_those_of_whom_asks_and_those_that_they_watch(reader: Client) -> None:
    mine, watched, other = request_row(requestor="rita"), request_row(requestor="olga"), request_row(requestor="olga")
    RequestWatch.objects.create(request=watched, user=User.objects.get(username="rita"), created_at=timezone.now())
    assert set(names_on(reader, "?mine=1")) == {mine.request_name, watched.request_name}
    assert set(names_on(reader)) == {mine.request_name, watched.request_name, other.request_name}


def test_a_list_is_had_as_json_and_csv_with_its_filters(reader: Client) -> None:
    row = request_row(S.HELD, campaign="Run3", hold_reason="a, b")
    request_row(S.ACTIVE)
    html = reader.get("/requests/?status=held").content.decode()
    json_, csv = (next(link for link in links(html, "part-heading") if link.startswith("/api/") and link.endswith(end))
                  for end in ("status=held", "format=csv"))  # fmt: skip
    assert [each["request_name"] for each in reader.get(json_).json()["results"]] == [row.request_name]
    answer = reader.get(csv)
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    head, line, *rest = b"".join(answer.streaming_content).decode().splitlines()
    assert head.startswith("request_name,") and line.startswith(row.request_name) and not rest
