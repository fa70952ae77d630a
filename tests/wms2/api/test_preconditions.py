"""If-Match: a change is made only to the version that was read, and where no version is kept the demand is refused."""

from __future__ import annotations

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus
from requests_app.models import Limit, Request, RequestStatus
from sites_app.models import Site, SiteBan, SiteStatus
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
API = "/api/v1"
WHY = {"reason": "r"}


def etag(client: APIClient, path: str) -> str:
    response = client.get(f"{API}/{path}")
    assert response.status_code == 200, response.content
    tag: str = response["ETag"]
    assert tag.startswith('"')  # strong
    return tag


def test_a_request_is_changed_only_in_the_version_that_was_read(operator: APIClient) -> None:
    row = request_row(RequestStatus.QUEUED, priority=5)
    path = f"requests/{row.request_name}"
    read = etag(operator, path)

    changed = operator.patch(f"{API}/{path}", {"priority": 7}, HTTP_IF_MATCH=read)
    assert (changed.status_code, changed.json()["priority"]) == (200, 7)
    assert changed["ETag"] == etag(operator, path) != read

    late = operator.patch(f"{API}/{path}", {"priority": 9}, HTTP_IF_MATCH=read)
    assert "nothing was done" in problem(late, 412, "precondition_failed")["detail"]
    assert late["ETag"] == changed["ETag"]
    row.refresh_from_db()
    assert row.priority == 7
    assert operator.patch(f"{API}/{path}", {"priority": 9}).status_code == 200  # without it as ever
    assert operator.patch(f"{API}/{path}", {"priority": 11}, HTTP_IF_MATCH="*").json()["priority"] == 11


def test_what_moves_by_itself_leaves_the_version(operator: APIClient) -> None:
    row = request_row(RequestStatus.QUEUED)
    read = etag(operator, f"requests/{row.request_name}")
    Request.objects.filter(pk=row.pk).update(waiting_for="a slot", updated_at="2026-01-01T00:00:00Z")
    assert etag(operator, f"requests/{row.request_name}") == read


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("hold", WHY),
        ("stop", WHY),
        ("release", WHY),
        ("fail", WHY),
        ("restart", WHY),
        ("invalidate", WHY),
        ("restore-files", {**WHY, "files": ["/store/a.root"]}),
        ("", None),
    ],
)
def test_no_verb_touches_a_request_that_has_changed(operator: APIClient, action: str, body: dict[str, Any] | None) -> None:
    row = request_row(RequestStatus.HELD)
    workflow_row(row)
    stale = etag(operator, f"requests/{row.request_name}")
    Request.objects.filter(pk=row.pk).update(hold_reason="another one by now")
    now = etag(operator, f"requests/{row.request_name}")

    if action:
        response = operator.post(f"{API}/requests/{row.request_name}/{action}", body, HTTP_IF_MATCH=stale)
    else:
        response = operator.delete(f"{API}/requests/{row.request_name}?reason=r", HTTP_IF_MATCH=stale)

    problem(response, 412, "precondition_failed")
    assert response["ETag"] == now == etag(operator, f"requests/{row.request_name}")
    assert not AuditEntry.objects.exists()


def test_a_verb_goes_through_with_the_version_of_now_and_tells_the_next(operator: APIClient) -> None:
    row = request_row(RequestStatus.QUEUED)
    path = f"requests/{row.request_name}"
    held = operator.post(f"{API}/{path}/hold", WHY, HTTP_IF_MATCH=etag(operator, path))
    assert (held.status_code, held.json()["status"]) == (202, "held")
    assert held["ETag"] == etag(operator, path)


def test_a_refusal_under_the_right_version_is_audited_like_any_other(operator: APIClient) -> None:
    row = request_row(RequestStatus.COMPLETED)
    path = f"requests/{row.request_name}"
    problem(operator.post(f"{API}/{path}/hold", WHY, HTTP_IF_MATCH=etag(operator, path)), 409, "invalid_transition")
    assert AuditEntry.objects.get(target=row.request_name).outcome == "refused"


@pytest.mark.parametrize(
    ("action", "body"), [("", {**WHY, "status": "disabled"}), ("drain", WHY), ("disable", WHY), ("ban", WHY)]
)
def test_a_site_is_changed_only_in_the_version_that_was_read(operator: APIClient, action: str, body: dict[str, Any]) -> None:
    for name in ("T2_A_B", "T2_C_D", "T2_E_F"):
        Site.objects.create(name=name)
    path = f"{API}/sites/T2_A_B" + (f"/{action}" if action else "")
    send = operator.post if action else operator.patch
    stale = etag(operator, "sites/T2_A_B")
    assert operator.patch(f"{API}/sites/T2_A_B", {**WHY, "config_data": {"a": 1}}, HTTP_IF_MATCH=stale).status_code == 200
    now = etag(operator, "sites/T2_A_B")
    late = send(path, body, HTTP_IF_MATCH=stale)
    problem(late, 412, "precondition_failed")
    assert late["ETag"] == now != stale
    assert Site.objects.get(pk="T2_A_B").status == SiteStatus.ENABLED
    assert not SiteBan.objects.exists()
    done = send(path, body, HTTP_IF_MATCH=f'"other", {now}')
    assert done.status_code in (200, 202)
    assert done["ETag"] == etag(operator, "sites/T2_A_B") != now


def test_limits_are_changed_only_in_the_version_that_was_read(operator: APIClient) -> None:
    stale = etag(operator, "admission/config")
    first = operator.patch(f"{API}/admission/config", {**WHY, "max_active_dags": 50}, HTTP_IF_MATCH=stale)
    assert first["ETag"] == etag(operator, "admission/config") != stale
    late = operator.patch(f"{API}/admission/config", {**WHY, "max_active_dags": 60}, HTTP_IF_MATCH=stale)
    problem(late, 412, "precondition_failed")
    assert late["ETag"] == first["ETag"]
    assert Limit.objects.get().value == 50


@pytest.mark.parametrize("action", ["hold", "release", "remove", "rescue"])
def test_no_verb_touches_a_dag_that_has_changed(operator: APIClient, action: str) -> None:
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING, schedd=schedd_row())
    stale = etag(operator, f"dags/{dag.pk}")
    DAG.objects.filter(pk=dag.pk).update(nodes_running=3)
    assert etag(operator, f"dags/{dag.pk}") == stale
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.HALTED)
    late = operator.post(f"{API}/dags/{dag.pk}/{action}", WHY, HTTP_IF_MATCH=stale)
    problem(late, 412, "precondition_failed")
    assert late["ETag"] == etag(operator, f"dags/{dag.pk}")
    assert not AuditEntry.objects.exists()


def test_what_has_no_version_refuses_the_demand(operator: APIClient) -> None:
    schedd = schedd_row()
    for path in ("requests", "effects/1/retry", f"schedds/{schedd.name}/confirm-lost"):
        response = operator.post(f"{API}/{path}", WHY, HTTP_IF_MATCH='"abc"')
        problem(response, 400, "precondition_unsupported", field="If-Match")
    problem(operator.get(f"{API}/requests", HTTP_IF_MATCH="*"), 400, "precondition_unsupported")


@pytest.mark.parametrize("given", ["abc", '"abc', "", '"a" "b"'])
def test_a_mistyped_demand_is_refused(operator: APIClient, given: str) -> None:
    row = request_row(RequestStatus.QUEUED)
    response = operator.post(f"{API}/requests/{row.request_name}/hold", WHY, HTTP_IF_MATCH=given)
    problem(response, 400, "invalid", field="If-Match")


def test_a_weak_tag_never_matches(operator: APIClient) -> None:
    row = request_row(RequestStatus.QUEUED)
    path = f"requests/{row.request_name}"
    response = operator.post(f"{API}/{path}/hold", WHY, HTTP_IF_MATCH="W/" + etag(operator, path))
    problem(response, 412, "precondition_failed")


def test_the_schema_says_where_it_is_taken() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]

    def taken(path: str, method: str) -> bool:
        return "If-Match" in [p["name"] for p in paths[f"{API}/{path}"][method].get("parameters", ()) if p["in"] == "header"]

    assert taken("requests/{request_name}", "patch")
    assert taken("requests/{request_name}/hold", "post")
    assert taken("admission/config", "patch")
    assert not taken("requests", "get")
    assert not taken("requests", "post")
    answer = paths[f"{API}/requests/{{request_name}}"]["get"]["responses"]["200"]
    assert "ETag" in answer["headers"]
