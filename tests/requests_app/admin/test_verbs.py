"""Operations in the admin: a page says what will happen and asks why; then the service of the REST interface does it, audited."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from dags_app.models import WorkUnitState
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.limits import limits_now
from requests_app.models import HoldCode, Limit, Request, RequestGroup, RequestStatus, RequestTransition
from requests_app.work.groups import group_status
from sites_app.models import ScheddState, Site
from tests.support.cases import in_one_test
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, schedd_row, unit_row, workflow_row
from tests.support.scripted.progress import fresh
from tests.support.stack import small_request
from wms2.admin.actions import MOST_ROWS
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus
REQUESTS = "/admin/requests_app/request"


def ask(client: Client, action: str, *rows: Any, of: str = REQUESTS) -> str:
    response = client.get(f"{of}/verb/{action}/", {"id": [row.pk for row in rows]})
    assert response.status_code == 200, response.content[:300]
    return text(response.content.decode())


def do(client: Client, action: str, row: Any, seen: str, of: str = REQUESTS, **data: Any) -> Any:
    return client.post(f"{of}/verb/{action}/", {"id": row.pk, "seen": seen, "reason": "because", **data})


def running(done: int = 3, planned: int = 1) -> Request:
    request = request_row(S.ACTIVE)
    dag = dag_row(workflow_row(request), schedd_name="schedd@test", dagman_cluster_id="4711")
    for index in range(done + planned):
        state = {"state": WorkUnitState.DONE, "manifest_sha256": "a", "fence": 1} if index < done else {}
        unit_row(dag, index, **state)
    return request


def audited(target: str) -> list[tuple[str, str, str, str]]:
    rows = AuditEntry.objects.filter(target=target).order_by("id")
    return list(rows.values_list("actor", "action", "outcome", "reason"))


def test_before_an_abort_the_page_names_the_request_and_what_will_happen(operator: Client) -> None:
    request = running()
    said = ask(operator, "abort", request)
    assert request.request_name in said
    assert "Active" in said
    assert "Its DAG is removed (DAGMan job 4711 at schedd@test)" in said
    assert "3 of 4 work units are done and stay registered." in said
    assert "It cannot be undone." in said
    assert fresh(request).status == S.ACTIVE, "asking does nothing"


def test_an_abort_with_a_reason_is_recorded_with_name_and_reason(operator: Client) -> None:
    request = running()
    response = do(operator, "abort", request, "active")
    assert (response.status_code, response["Location"]) == (302, f"{REQUESTS}/{request.pk}/change/")
    assert (fresh(request).status, request.stop_intent) == (S.STOPPING, "abort")
    last = RequestTransition.objects.filter(request=request).latest("id")
    assert (last.to_status, last.actor, last.reason) == ("stopping", "olga", "because")
    assert audited(request.request_name) == [("olga", "request_abort", "done", "because")]
    assert [str(m) for m in get_messages(response.wsgi_request)] == [f"Abort: {request.request_name}. It is Stopping now."]


def test_without_a_reason_nothing_happens(operator: Client) -> None:
    request = running()
    for reason in ("", "   ", "x" * 2001):
        response = do(operator, "abort", request, "active", reason=reason)
        assert response.status_code == 400
        assert "Nothing was done" in text(response.content.decode())
    assert fresh(request).status == S.ACTIVE
    assert audited(request.request_name) == []


def test_a_group_has_a_name_that_can_stand_in_an_address(operator: Client) -> None:
    request = running()
    response = do(operator, "group", request, "active", in_group="a b/c")
    assert response.status_code != 302
    assert "a letter or digit first" in text(response.content.decode())
    assert not RequestGroup.objects.exists()


def test_a_group_that_has_another_name_already_is_shown_and_dissolved(operator: Client) -> None:
    request, group = running(), RequestGroup.objects.create(name="a b/c?\n", created_by="olga")
    Request.objects.filter(pk=request.pk).update(in_group=group)
    own = reverse("admin:requests_app_requestgroup_change", args=[quote(group.pk)])
    for page in (request.get_absolute_url(), group.get_absolute_url(), own, "/admin/requests_app/requestgroup/", "/requests/"):
        assert operator.get(page).status_code == 200, page
    seen = group_status(group).status
    dissolved = operator.post(
        "/admin/requests_app/requestgroup/verb/dissolve/", {"id": group.pk, "seen": seen, "reason": "its name"}
    )
    assert (dissolved.status_code, fresh(request).in_group_id) == (302, None)


def test_a_request_that_changed_since_one_was_asked_is_not_touched(operator: Client) -> None:
    request = request_row(S.HELD, hold_code=HoldCode.OPERATOR)
    response = do(operator, "abort", request, "active")
    said = text(response.content.decode())
    assert response.status_code == 409
    assert "It has changed since you were asked: it is Held now." in said
    assert "It is aborted at once." in said, "what would happen now"
    assert fresh(request).status == S.HELD


def test_the_page_of_an_operation_that_does_not_apply_says_why_and_asks_for_no_reason(operator: Client) -> None:
    said = ask(operator, "release", request_row(S.COMPLETED))
    assert "It is Completed; only a held request can be released." in said
    assert "Reason" not in said


def test_the_reason_stands_right_below_what_will_happen_and_has_the_focus(operator: Client) -> None:
    html = operator.get(f"{REQUESTS}/verb/release/", {"id": request_row(S.HELD).pk}).content.decode()
    said = text(html)
    assert said.index("What will happen") < said.index("Reason:") < said.index("How it goes on:") < said.index("Sites to avoid:")
    assert html.count("autofocus") == 1
    assert "autofocus" in html[html.index("<textarea") : html.index("</textarea>")]


def test_below_a_long_list_the_reason_has_no_focus_which_would_scroll_it_away(operator: Client) -> None:
    rows = [request_row(S.HELD) for _ in range(20)]
    html = operator.get(f"{REQUESTS}/verb/release/", {"id": [row.pk for row in rows]}).content.decode()
    assert "autofocus" not in html
    assert "Reason:" in text(html)


def test_a_release_says_where_the_request_goes_on(operator: Client) -> None:
    unread = request_row(S.HELD)
    assert "Its inputs are read again; then it is queued." in ask(operator, "release", unread)
    planned = request_row(S.HELD)
    unit_row(dag_row(workflow_row(planned)), state=WorkUnitState.DONE, manifest_sha256="a", fence=1)
    assert "1 of 1 work unit are done and stay registered." in ask(operator, "release", planned)


def test_the_priority_is_changed_with_a_reason(operator: Client) -> None:
    request = request_row(S.QUEUED, priority=5)
    assert "Its priority is 5 now." in ask(operator, "priority", request)
    assert do(operator, "priority", request, "queued", priority="1000000").status_code == 400
    assert do(operator, "priority", request, "queued", priority="90").status_code == 302
    assert fresh(request).priority == 90


def test_several_are_named_each_and_only_those_it_applies_to_are_touched(operator: Client) -> None:
    held, active = request_row(S.HELD), running()
    response = operator.get(f"{REQUESTS}/verb/release/", {"id": [held.pk, active.pk]})
    html = response.content.decode()
    assert held.request_name in text(html)
    assert "It is Active; only a held request can be released." in text(html)
    assert html.count('name="id"') == 1
    response = operator.post(f"{REQUESTS}/verb/release/", {"id": [held.pk], "seen": ["held"], "reason": "because"})
    assert response.status_code == 302
    assert (fresh(held).status, fresh(active).status) == (S.SUBMITTED, S.ACTIVE)


def test_of_several_those_that_went_wrong_come_back_and_the_others_are_done(operator: Client) -> None:
    first, second = request_row(S.HELD), request_row(S.QUEUED)
    data = {"id": [first.pk, second.pk], "seen": ["held", "held"], "reason": "because"}
    response = operator.post(f"{REQUESTS}/verb/release/", data)
    said = text(response.content.decode())
    assert response.status_code == 409
    assert f"Release: {first.request_name}. It is Submitted now." in said
    assert "it is Queued now" in said
    assert (fresh(first).status, fresh(second).status) == (S.SUBMITTED, S.QUEUED)


def test_the_lists_action_leads_to_the_same_page(operator: Client) -> None:
    rows = [request_row(S.QUEUED) for _ in range(2)]
    response = operator.post(f"{REQUESTS}/", {"action": "abort", "_selected_action": [row.pk for row in rows]})
    assert response.status_code == 302
    assert response["Location"].startswith(f"{REQUESTS}/verb/abort/?id=")
    assert "Abort: 2 requests" in text(operator.get(response["Location"]).content.decode())


def test_more_than_can_be_named_are_refused(operator: Client) -> None:
    rows = [request_row(S.QUEUED) for _ in range(MOST_ROWS + 1)]
    data = {"action": "abort", "_selected_action": [row.pk for row in rows], "select_across": "1"}
    response = operator.post(f"{REQUESTS}/", data, follow=True)
    assert f"At most {MOST_ROWS} at once" in text(response.content.decode())
    assert operator.get(f"{REQUESTS}/verb/abort/", {"id": [row.pk for row in rows]}).status_code == 404


@pytest.mark.parametrize("query", ["", "?id=", "?id=not-a-key", "?id=00000000-0000-0000-0000-000000000000"])
def test_rows_that_do_not_exist_are_not_found(operator: Client, query: str) -> None:
    assert operator.get(f"{REQUESTS}/verb/abort/{query}").status_code == 404


@pytest.mark.parametrize(
    "path", [f"{REQUESTS}/verb/hold/", "/admin/sites_app/site/verb/drain/", "/admin/requests_app/limit/verb/change/"]
)
def test_a_key_that_no_row_can_have_is_not_found(operator: Client, path: str) -> None:
    assert operator.get(f"{path}?id=T2%00").status_code == 404


def test_a_verb_that_does_not_exist_is_not_found(operator: Client) -> None:
    assert operator.get(f"{REQUESTS}/verb/promote/?id={request_row().pk}").status_code == 404


def test_who_has_no_role_sees_no_operations_and_is_refused_by_the_one_that_is_missing(staff: Client, reader: Client) -> None:
    request = request_row(S.QUEUED)
    assert staff.get(f"{REQUESTS}/verb/abort/?id={request.pk}").status_code == 403
    assert do(reader, "abort", request, "queued").status_code == 403
    assert fresh(request).status == S.QUEUED
    html = staff.get(f"{REQUESTS}/{request.pk}/change/").content.decode()
    verbs = [link for link in links(html) if "/verb/" in link]
    assert verbs == [f"{REQUESTS}/verb/watch/?id={request.pk}"]  # mails to oneself
    assert 'value="abort"' not in staff.get(f"{REQUESTS}/").content.decode()


def test_a_post_without_its_token_is_refused() -> None:
    from django.contrib.auth.models import User

    request = request_row(S.QUEUED)
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("sue"))
    assert do(client, "abort", request, "queued").status_code == 403
    assert fresh(request).status == S.QUEUED


def test_a_rows_page_has_buttons_for_what_applies(operator: Client) -> None:
    request = request_row(S.HELD)
    buttons = [link for link in links(operator.get(f"{REQUESTS}/{request.pk}/change/").content.decode()) if "/verb/" in link]
    offered = (
        "release",
        "sites",
        "priority",
        "pin",
        "retry-time",
        "pools",
        "throttle",
        "error-limits",
        "note",
        "group",
        "depend",
        "restart",
        "fail",
        "abort",
        "clean",
        "watch",
    )
    assert buttons == [f"{REQUESTS}/verb/{action}/?id={request.pk}" for action in offered]


def test_after_a_verb_one_lands_where_one_came_from(operator: Client) -> None:
    request = running()
    live = request.get_absolute_url()
    button = next(link for link in links(operator.get(live).content.decode()) if "/verb/hold/" in link)
    assert live in links(operator.get(button).content.decode()), "the way back without doing anything"
    response = do(operator, "hold", request, "active", back=live)
    assert (response.status_code, response["Location"]) == (302, live)


def test_the_message_after_a_verb_is_on_the_page_where_one_lands_and_on_no_other(operator: Client) -> None:
    request, other = running(), request_row(S.ACTIVE)
    page = request.get_absolute_url()
    assert do(operator, "hold", request, "active", back=page)["Location"] == page
    assert f"Hold: {request.request_name}." in text(operator.get(page).content.decode())
    assert "Hold:" not in ask(operator, "abort", other)


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_a_verb_leads_to_no_other_site(operator: Client, elsewhere: str) -> None:
    request = running()
    assert elsewhere not in operator.get(f"{REQUESTS}/verb/hold/", {"id": request.pk, "back": elsewhere}).content.decode()
    assert do(operator, "hold", request, "active", back=elsewhere)["Location"] == f"{REQUESTS}/{request.pk}/change/"


def test_after_a_restart_one_lands_on_the_new_version(operator: Client) -> None:
    old = request_row(S.HELD, hold_code=HoldCode.OPERATOR, request_data=small_request())
    response = do(operator, "restart", old, "held", back=old.get_absolute_url())
    new = Request.objects.get(previous_version_request=old)
    assert (response.status_code, response["Location"]) == (302, new.get_absolute_url())


def test_many_rows_get_one_table_and_one_answer(operator: Client) -> None:
    rows = [request_row(S.QUEUED) for _ in range(MOST_ROWS - 1)] + [running()]
    listed = f"{REQUESTS}/?status__exact=queued"
    asked = operator.get(f"{REQUESTS}/verb/abort/", {"id": [row.pk for row in rows], "back": listed})
    html = asked.content.decode()
    assert html.count("<table") == 1
    assert f"Abort applies to {MOST_ROWS} of {MOST_ROWS} requests." in text(html)
    data = {"id": [row.pk for row in rows], "seen": [row.status for row in rows], "reason": "because", "back": listed}
    response = operator.post(f"{REQUESTS}/verb/abort/", data)
    assert (response.status_code, response["Location"]) == (302, listed)
    said = [str(message) for message in get_messages(response.wsgi_request)]
    assert said == [f"Abort: {MOST_ROWS} requests. Now {MOST_ROWS - 1} Aborted, 1 Stopping."]


@in_one_test("key", ["no_such_name", "%00", "a%00b", "_00"])
@in_one_test("of", [REQUESTS, "/admin/sites_app/site", "/admin/dags_app/dag", "/admin/outputs_app/effect"])
def test_a_key_of_no_row_is_reported_on_a_page(operator: Client, key: str, of: str) -> None:
    response = operator.get(f"{of}/{key}/change/")
    assert response.status_code == 404
    said = " ".join(text(response.content.decode(), "main").split())
    assert re.search(r"There is no (request|site|DAG|effect) \S", said), said
    assert "Find it by name, id or path" in said


@in_one_test("query", ["status__exact=%00", "q=%00", "nonsense=%00", "p=%00"])
@in_one_test("of", [REQUESTS, "/admin/sites_app/site", "/admin/dags_app/dag", "/admin/outputs_app/effect"])
def test_a_filter_that_no_row_can_pass_is_answered_with_a_page(operator: Client, query: str, of: str) -> None:
    assert operator.get(f"{of}/?{query}", follow=True).status_code == 200


@in_one_test("notes", ["[" * 5000, '{"\\u0000": "a"}', '{"a": ["\\ud800"]}', '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_notes_that_cannot_be_stored_are_refused_in_the_form(operator: Client, notes: str) -> None:
    site = Site.objects.get_or_create(name="T2_CH_CERN")[0]
    given = {"id": site.pk, "seen": site.status, "reason": "because", "notes": notes}
    assert operator.post("/admin/sites_app/site/verb/note/", given).status_code == 400


@pytest.mark.parametrize(
    ("of", "action", "key"),
    [
        (REQUESTS, "hold", "abc"),
        (REQUESTS, "hold", "a\x00"),
        ("/admin/sites_app/site", "drain", "a\x00"),
        ("/admin/outputs_app/effect", "retry", "abc"),
    ],
)
def test_an_action_on_a_key_that_is_none_does_nothing(operator: Client, of: str, action: str, key: str) -> None:
    data = {"action": action, "_selected_action": key, "index": 0}
    assert operator.post(f"{of}/", data, follow=True).status_code == 200


EFFECTS = "/admin/outputs_app/effect"


def effect(state: EffectState, **fields: Any) -> Effect:
    return Effect.objects.create(
        request=request_row(S.ACTIVE), kind=EffectKind.RUCIO_TAPE, key=f"tape:{state}", state=state, **fields
    )


def test_a_refused_effect_is_retried_with_a_reason(operator: Client) -> None:
    row = effect(EffectState.REFUSED, attempts=2, last_error="no such RSE")
    said = ask(operator, "retry", row, of=EFFECTS)
    assert "Tape rule for the block: tried again at once, after 2 attempts" in said
    assert "Last error: no such RSE" in said
    assert do(operator, "retry", row, "refused", of=EFFECTS).status_code == 302
    row.refresh_from_db()
    assert row.state == EffectState.PENDING
    assert audited(row.key) == [("olga", "effect_retry", "done", "because")]


def test_many_effects_are_discarded_at_once_after_a_preview(operator: Client) -> None:
    rows = [effect(EffectState.REFUSED, last_error="no such RSE"), effect(EffectState.DEAD)]
    said = ask(operator, "discard", *rows, of=EFFECTS)
    assert said.count("never run. The request does not wait for it.") == 2
    data = {"id": [row.pk for row in rows], "seen": [row.state.value for row in rows], "reason": "because"}
    assert operator.post(f"{EFFECTS}/verb/discard/", data).status_code == 302
    assert set(Effect.objects.values_list("state", flat=True)) == {EffectState.DISCARDED}
    for row in rows:
        assert audited(row.key) == [("olga", "effect_discard", "done", "because")]


SCHEDDS = "/admin/sites_app/schedd"


def test_a_schedds_state_is_changed_and_the_page_says_how_many_dags_are_there(operator: Client) -> None:
    schedd = schedd_row()
    dag_row(workflow_row(), schedd=schedd)
    for action, before, after in (
        ("drain", ScheddState.ENABLED, ScheddState.DRAINING),
        ("disable", ScheddState.DRAINING, ScheddState.DISABLED),
        ("enable", ScheddState.DISABLED, ScheddState.ENABLED),
    ):
        assert "1 DAG there now." in ask(operator, action, schedd, of=SCHEDDS)
        assert do(operator, action, schedd, before.value, of=SCHEDDS).status_code == 302
        schedd.refresh_from_db()
        assert schedd.state == after


LIMITS = "/admin/requests_app/limit"


def test_all_limits_are_listed_changed_or_not(operator: Client, staff: Client) -> None:
    Limit.objects.create(name="jobs_per_work_unit", value=4, reason="small test", actor="dan")
    html = operator.get(f"{LIMITS}/").content.decode()
    assert "max_active_dags DAGs that may be live at the same time, in all 300 300" in text(html)
    assert "jobs_per_work_unit Processing jobs that are merged together in the first round 4 8 dan" in text(html)
    assert "1,000,000,000,000 (1.0 TB)" in text(html)
    assert "604,800 (7 d)" in text(html)
    assert f"{LIMITS}/verb/change/?id=max_active_dags" in links(html)
    assert not [link for link in links(staff.get(f"{LIMITS}/").content.decode()) if "/verb/" in link]


def test_a_limit_that_has_no_row_yet_is_changed_with_a_reason(operator: Client) -> None:
    said = text(operator.get(f"{LIMITS}/verb/change/?id=max_active_dags").content.decode())
    assert "It is 300 now; its default is 300." in said
    assert "0 slots are in use." in said
    data = {"id": "max_active_dags", "seen": "300", "reason": "because", "value": "12"}
    assert operator.post(f"{LIMITS}/verb/change/", data)["Location"] == f"{LIMITS}/"
    assert limits_now().max_active_dags == 12
    row = Limit.objects.get(name="max_active_dags")
    assert (row.actor, row.reason) == ("olga", "because")
    assert audited("max_active_dags") == [("olga", "limit_set", "done", "because")]


@in_one_test("value", ["", "many", "0", "2.5", "nan", "1e400"])
def test_a_value_that_the_knob_refuses_changes_nothing(operator: Client, value: str) -> None:
    data = {"id": "max_active_dags", "seen": "300", "reason": "because", "value": value}
    assert operator.post(f"{LIMITS}/verb/change/", data).status_code in (400, 409)
    assert limits_now().max_active_dags == 300


def test_a_knob_that_needs_a_restart_is_no_limit(operator: Client) -> None:
    assert operator.get(f"{LIMITS}/verb/change/?id=cycle_seconds").status_code == 404
