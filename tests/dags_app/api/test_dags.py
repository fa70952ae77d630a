"""DAGs: the list, one, the live nodes from DAGMan's recorded files, and the end of its log."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.live import MAX_TAIL_BYTES
from dags_app.models import DAG, DAGKind, DAGStatus, FailureGroup, WorkUnitState
from dags_app.states import history
from requests_app.models import RequestStatus
from tests.support.cases import in_one_test
from tests.support.places import RECORDED_DAGS
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, round_row, unit_row, workflow_row
from tests.support.web_clients import client_of

pytestmark = pytest.mark.django_db
RECORDED = RECORDED_DAGS
DONE = {"state": WorkUnitState.DONE, "manifest_sha256": "a", "fence": 1}


def new_dag(**fields: Any) -> DAG:
    return dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), **fields)


@pytest.fixture
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> DAG:
    """A DAG whose directory holds what a real DAGMan left; parametrised by ``series/case``."""
    directory = tmp_path / "dag"
    shutil.copytree(RECORDED / request.param, directory)
    return new_dag(
        submit_dir=str(directory), dag_file_path=str(directory / "workflow.dag"), schedd_name="schedd@test",
        observed={"nodes_done": 1, "units_running": 1}, observed_at=timezone.now(),
    )  # fmt: skip


def nodes(client: APIClient, dag: DAG, **query: Any) -> dict[str, Any]:
    response = client.get(f"/api/v1/dags/{dag.pk}/nodes", query)
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def test_the_list_shows_and_filters_submissions(reader: APIClient) -> None:
    live = new_dag(schedd_name="a", total_work_units=3)
    ended = new_dag(status=DAGStatus.PARTIAL, schedd_name="b")
    rescue = dag_row(ended.workflow, kind=DAGKind.FAILURE_RESCUE, parent_dag=ended, round=ended.round, schedd_name="b")

    def found(**query: Any) -> set[str]:
        return {row["id"] for row in reader.get("/api/v1/dags", query).json()["results"]}

    assert found() == {str(live.pk), str(ended.pk), str(rescue.pk)}
    assert found(live="true") == {str(live.pk), str(rescue.pk)}
    assert found(live="false") == found(status="partial,failed") == {str(ended.pk)}
    assert found(kind="failure_rescue") == {str(rescue.pk)}
    assert found(schedd="a") == found(request=live.workflow.request_id) == found(workflow=live.workflow_id) == {str(live.pk)}


def test_one_dag_has_its_evidence_history_and_completed_units(reader: APIClient) -> None:
    dag = new_dag(
        total_work_units=2, total_nodes=22, node_counts={"Processing": 16, "Merge": 2, "Cleanup": 2, "Landing": 2},
        placement={"chosen": "schedd@test", "rejected": {}},
    )  # fmt: skip
    unit_row(dag, 0, **DONE)
    unit_row(dag, 1)
    history(dag, "submitted", detail={"cluster": 7})

    body = reader.get(f"/api/v1/dags/{dag.pk}").json()

    assert (body["request_name"], body["round"], body["status"]) == (dag.workflow.request_id, 0, "running")
    assert (body["completed_work_units"], body["nodes_done"], body["total_nodes"]) == (["mg_000000"], 11, 22)
    assert body["placement"]["chosen"] == "schedd@test"
    assert [(line["event_type"], line["detail"]) for line in body["history"]] == [("submitted", {"cluster": 7})]


def test_one_dag_has_its_jobs_by_site_the_ended_ones_of_its_round(reader: APIClient, django_assert_num_queries: Any) -> None:
    first = new_dag(status=DAGStatus.PARTIAL)
    unit_row(first, 0, **DONE, jobs=8, site="T2_CH_CERN")
    first.round.closed_at = timezone.now()
    first.round.save()
    dag = dag_row(first.workflow, round=round_row(first.workflow, 1), jobs={"sites": {"T1_US_FNAL": {"running": 4, "held": 1}}})
    for index, site in enumerate(("T1_US_FNAL", "T2_CH_CERN", "T2_CH_CERN")):
        unit_row(dag, index, **DONE, jobs=8, site=site)
    unit_row(dag, 3, jobs=8, site="T2_DE_DESY")
    FailureGroup.objects.create(
        workflow=dag.workflow, category="transient", code=1, site="T2_CH_CERN", attempts=7, rounds={"0": 5, "1": 2},
        first_at=timezone.now(), last_at=timezone.now(),
    )  # fmt: skip

    # user; the DAG with its history; units, failures and jobs that ended well, once; completed units; both of them by site
    with django_assert_num_queries(8):
        body = reader.get(f"/api/v1/dags/{dag.pk}").json()

    none = {"idle": 0, "running": 0, "held": 0, "done": 0, "failed": 0}
    assert body["sites"] == {
        "T1_US_FNAL": none | {"running": 4, "held": 1, "done": 9},
        "T2_CH_CERN": none | {"done": 18, "failed": 2},
    }
    staff = client_of(User.objects.create_user("stan", is_staff=True))
    page = staff.get(f"/admin/dags_app/dag/{dag.pk}/change/").content.decode()
    assert "&quot;failed&quot;: 2" in page


@pytest.mark.parametrize("rows", [1, 20])
def test_a_page_costs_two_queries_however_many_rows(reader: APIClient, rows: int, django_assert_num_queries: Any) -> None:
    for _ in range(rows):
        new_dag()
    with django_assert_num_queries(2) as captured:
        assert len(reader.get("/api/v1/dags").json()["results"]) == rows
    assert not any('"config_data"' in query["sql"] for query in captured.captured_queries)


@pytest.mark.parametrize("recorded", ["23.9/running", "25/running"], indirect=True)
def test_the_nodes_are_dagmans_own_with_the_inner_ones_of_each_unit(reader: APIClient, recorded: DAG) -> None:
    body = nodes(reader, recorded)
    assert body["outer"]["problem"] == ""
    assert body["outer"]["counts"]["total"] == len(body["results"]) == 2
    assert [node["name"] for node in body["results"]] == ["mg_000000", "mg_000001"]
    inner = body["results"][0]["inner"]
    assert inner["path"].endswith("mg_000000/group.dag.status")
    assert "landing" in {node["name"] for node in inner["nodes"]}
    assert body["results"][1]["inner"]["problem"] == "not written yet"
    assert body["queue"]["counts"] == {"nodes_done": 1, "units_running": 1}
    assert body["queue"]["schedd"] == "schedd@test"


@pytest.mark.parametrize("recorded", ["25/failed"], indirect=True)
def test_nodes_are_filtered_by_state_and_cut_into_pages(reader: APIClient, recorded: DAG) -> None:
    everything = nodes(reader, recorded)["results"]
    states = {node["state"] for node in everything}
    assert "error" in states
    failed = nodes(reader, recorded, state="error")["results"]
    assert failed == [node for node in everything if node["state"] == "error"]
    first = nodes(reader, recorded, page_size=1)
    assert len(first["results"]) == 1
    assert reader.get(first["next"]).json()["results"] == everything[1:2]
    assert nodes(reader, recorded, page=999)["results"] == []


@pytest.mark.parametrize("recorded", ["25/running"], indirect=True)
@pytest.mark.parametrize(
    "content", [b"", b"[ Type = ", b"\xff\xfe\x00", b'[ a = ; Type = "StatusEnd" ]\n', b'[ Type = "StatusEnd"; ]']
)
def test_a_file_that_cannot_be_read_is_told_and_nothing_fails(reader: APIClient, recorded: DAG, content: bytes) -> None:
    (Path(recorded.submit_dir) / "workflow.dag.status").write_bytes(content)
    body = nodes(reader, recorded)
    assert body["outer"]["problem"]
    assert (body["outer"]["counts"], body["results"]) == (None, [])


@pytest.mark.parametrize("recorded", ["25/running"], indirect=True)
def test_a_node_that_is_no_unit_reads_no_file(reader: APIClient, recorded: DAG) -> None:
    path = Path(recorded.submit_dir) / "workflow.dag.status"
    path.write_text(path.read_text().replace("mg_000001", "../../etc"))
    (strange,) = [node for node in nodes(reader, recorded)["results"] if node["name"] == "../../etc"]
    assert strange["inner"] is None


def test_a_dag_without_files_says_so(reader: APIClient) -> None:
    dag = new_dag(submit_dir="/nowhere/at/all", status=DAGStatus.READY)
    body = nodes(reader, dag)
    assert body["outer"] == {
        "path": "/nowhere/at/all/workflow.dag.status", "problem": "not written yet", "written_at": None, "final": None,
        "counts": None,
    }  # fmt: skip
    logs = reader.get(f"/api/v1/dags/{dag.pk}/logs").json()
    assert (logs["files"], logs["tail"]["lines"]) == ([], [])
    assert logs["tail"]["problem"] == "not written yet, or removed"


def test_the_log_is_told_by_path_and_shown_by_its_end(reader: APIClient, tmp_path: Path) -> None:
    (tmp_path / "workflow.dag.dagman.out").write_text("".join(f"line {n}\n" for n in range(1000)))
    (tmp_path / "workflow.dag.metrics").write_text("{}")
    (tmp_path / "unit.json").write_text("{}")
    dag = new_dag(submit_dir=str(tmp_path))

    body = reader.get(f"/api/v1/dags/{dag.pk}/logs", {"lines": 3}).json()

    assert [Path(file["path"]).name for file in body["files"]] == ["workflow.dag.dagman.out", "workflow.dag.metrics"]
    assert body["tail"]["lines"] == ["line 997", "line 998", "line 999"]
    assert body["tail"]["truncated"] is True
    assert len(reader.get(f"/api/v1/dags/{dag.pk}/logs").json()["tail"]["lines"]) == 200


def test_a_units_own_log_is_shown_when_asked_for(reader: APIClient, tmp_path: Path) -> None:
    (tmp_path / "mg_000003").mkdir()
    (tmp_path / "mg_000003/group.dag.dagman.out").write_text("inner\n")
    dag = new_dag(submit_dir=str(tmp_path))
    tail = reader.get(f"/api/v1/dags/{dag.pk}/logs", {"unit": "mg_000003"}).json()["tail"]
    assert (tail["lines"], tail["truncated"]) == (["inner"], False)


def test_a_huge_log_of_any_bytes_costs_a_bounded_answer(reader: APIClient, tmp_path: Path) -> None:
    (tmp_path / "workflow.dag.dagman.out").write_bytes(b"\xff\x00x" * MAX_TAIL_BYTES + b"\nthe end\n")
    dag = new_dag(submit_dir=str(tmp_path))
    response = reader.get(f"/api/v1/dags/{dag.pk}/logs", {"lines": 2000})
    assert len(response.content) < 2 * MAX_TAIL_BYTES
    assert response.json()["tail"]["lines"] == ["the end"]


@in_one_test(
    "path, field",
    [("nodes?state=odd", "state"), ("nodes?page=0", "page"), ("nodes?page_size=501", "page_size"), ("nodes?unit=a", "unit"),
     ("logs?lines=0", "lines"), ("logs?lines=2001", "lines"), ("logs?lines=x", "lines"), ("logs?unit=../etc/passwd", "unit"),
     ("logs?unit=mg_000000/..", "unit"), ("logs?unit=", "unit"), ("logs?unit=mg_000000%0A", "unit"),
     ("logs?file=/etc/passwd", "file")],
)  # fmt: skip
def test_a_wrong_query_is_400(reader: APIClient, path: str, field: str) -> None:
    response = reader.get(f"/api/v1/dags/{new_dag().pk}/{path}")
    assert (response.status_code, response.json()["field"]) == (400, field)


@in_one_test("query", ["status=odd", "live=perhaps&x=1", "workflow=1", "kind=odd", "ordering=observed", "schedd=%00"])
def test_a_wrong_filter_is_400(reader: APIClient, query: str) -> None:
    assert reader.get(f"/api/v1/dags?{query}").status_code == 400


def test_what_is_not_there_is_404(reader: APIClient) -> None:
    for path in ("", "/nodes", "/logs"):
        problem(reader.get(f"/api/v1/dags/{uuid.uuid4()}{path}"), 404, "not_found")
