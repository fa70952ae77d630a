"""One DAG's page: its units with tries, what takes how long, one unit's nodes; reports and ads of jobs as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dags_app.models import DAG, DAGStatus, FailureLog, WorkUnit
from dags_app.payload.contract import layout
from requests_app.pages.readable import ad_sections, sections
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene import Scene

pytestmark = pytest.mark.django_db
BEGUN = 1_760_000_000
#: session, user, roles; DAG; units, and their sites where there are more than are drawn; all that is short
PAGE_QUERIES = 7


def _dag(tmp_path: Path, units: int) -> DAG:
    dag = dag_row(
        workflow_row(request_row()), DAGStatus.RUNNING, dagman_cluster_id="47", submit_dir=str(tmp_path), total_work_units=units
    )
    WorkUnit.objects.bulk_create(
        WorkUnit(
            workflow=dag.workflow, round=dag.round, dag=dag, index=i, name=f"mg_{i:06d}", jobs=1,
            site="T2_CH_CERN" if i % 2 else "T2_DE_DESY",
        )
        for i in range(units)
    )  # fmt: skip
    lines = [f"{BEGUN} INTERNAL *** DAGMAN_STARTED 47.0 ***"]
    for i in range(units):
        lines += [f"{BEGUN + i} mg_{i:06d} SUBMIT {48 + i}.0 - - 1", f"{BEGUN + i} mg_{i:06d} EXECUTE {48 + i}.0 - - 1"]
        lines.append(f"{BEGUN + 60 + 2 * i} mg_{i:06d} {'JOB_FAILURE 1' if i == 1 else 'JOB_SUCCESS 0'} - - 1")
    lines += [f"{BEGUN + 70} mg_000001 SUBMIT 900.0 - - 2", f"{BEGUN + 90} mg_000001 JOB_SUCCESS 0 - - 2"]
    (tmp_path / layout.JOBSTATE_LOG).write_text("\n".join(lines) + "\n")
    return dag


def test_few_units_are_drawn_over_time_with_every_try(reader: Client, tmp_path: Path) -> None:
    dag = _dag(tmp_path, 4)
    html = reader.get(f"/dags/{dag.pk}/").content.decode()
    assert html.count('<rect class="bar-done"') == 4 and html.count('<rect class="bar-bad"') == 1
    assert "mg_000001: waiting at T2_CH_CERN; 2 tries" in html
    said = text(html, "part-durations")
    assert "work unit T2_DE_DESY 2 62 s 62 s 62 s" in said and "The" not in said.split("By site")[1]
    assert "47" in text(html, "part-head") and str(tmp_path) in text(html, "part-head")


def test_of_many_units_the_fifty_slowest_are_listed_at_the_same_cost(
    reader: Client, tmp_path: Path, django_assert_max_num_queries: Any
) -> None:
    dag = _dag(tmp_path, 301)
    with django_assert_max_num_queries(PAGE_QUERIES):
        html = reader.get(f"/dags/{dag.pk}/").content.decode()
    assert "<rect" not in html
    said = text(html, "part-durations")
    assert "The 50 slowest" in said and said.count("mg_0") == 50
    assert said.index("mg_000300") < said.index("mg_000251") and "mg_000250" not in said
    assert "?unit=mg_000300#unit" in links(html)


def test_pages_stand_where_failed_attempts_were_not_counted(reader: Client, tmp_path: Path) -> None:
    dag = _dag(tmp_path, 2)
    FailureLog.objects.create(directory_id=dag.directory_id, attempts=None)
    for path in (f"/dags/{dag.pk}/", f"/requests/{dag.workflow.request_id}/"):
        assert reader.get(path).status_code == 200, path


def test_a_unit_shows_its_nodes_with_attempts_and_ways_to_logs_report_and_ads(reader: Client, tmp_path: Path) -> None:
    dag = _dag(tmp_path, 2)
    place = tmp_path / "mg_000000"
    place.mkdir()
    ad = '[ Type = "DagStatus"; DagFiles = { "group.dag" }; Timestamp = 1; DagStatus = 3; ' + "".join(
        f"{name} = 1; "
        for name in (
            "NodesTotal", "NodesDone", "NodesPre", "NodesQueued", "NodesPost", "NodesReady", "NodesUnready", "NodesFailed",
            "NodesFutile", "JobProcsIdle", "JobProcsHeld",
        )
    ) + "]\n"  # fmt: skip
    node = (
        '[ Type = "NodeStatus"; Node = "proc_000000"; NodeStatus = 3; RetryCount = 1; JobProcsQueued = 1; JobProcsHeld = 0; ]\n'
    )
    (place / layout.INNER_STATUS).write_text(ad + node + '[ Type = "StatusEnd"; NextUpdate = 9; ]\n')
    record = {
        "attempt": 0, "job_id": "7.0", "timestamp": "2026-09-04T08:00:00Z", "logs": None, "report": "proc_000000.0.report.json",
        "job": {"site": "T2_DE_DESY", "wall_time_sec": 130, "memory_mb": 2300}, "classification": {
            "category": "transient", "code": 8001, "reason": "<b>cmsRun</b> failed"},
    }  # fmt: skip
    (place / "proc_000000.attempts.jsonl").write_text(json.dumps(record) + "\n" + '{"attempt": "x", "job": 5}\n')
    report = {
        "schema": "wms2.report/1", "job_id": "7.0", "exit_code": 8001, "site": "T2_DE_DESY", "cgroup_peak_mb": 2300,
        "steps": [{"name": "GenSim", "wall_seconds": 130.5, "peak_rss_mb": 2200.4, "bytes_written": {"RAWSIM": 2_500_000}}],
        "processed": {"events": 12000, "files": [{"lfn": "/store/a.root", "events": 3}]},
    }  # fmt: skip
    (place / "proc_000000.0.report.json").write_text(json.dumps(report))
    by_role = text(reader.get(f"/dags/{dag.pk}/?roles=1").content.decode(), "part-durations")
    assert "processing job T2_DE_DESY 1 2 min 2 min 2 min" in by_role
    html = reader.get(f"/dags/{dag.pk}/?unit=mg_000000").content.decode()
    said = text(html, "part-unit")
    assert "proc_000000 submitted 0 T2_" in said and " 2 min 2,300 MB 8001 " in said and "<b>cmsRun" not in html
    job = f"/dags/{dag.pk}/units/mg_000000/nodes/proc_000000/attempts/0/jobs/7.0"
    assert {f"{job}/report/", f"{job}/ads/"} <= set(links(html, "part-unit")) and f"{job}/logs/" not in links(html, "part-unit")
    shown = reader.get(f"{job}/report/").content.decode()
    for reported in ("Exit code 8001", "GenSim 2 min 2,200 MB RAWSIM: 2.5 MB", "/store/a.root", "Events 12,000"):
        assert reported in text(shown), text(shown)
    assert f"/api/v1{job}/report" in links(shown)
    assert "nothing came back of this job" in reader.get(f"{job}/ads/").content.decode()
    assert reader.get(f"/dags/{dag.pk}/?unit=../x").status_code == 404
    assert reader.get(job.replace("7.0", "x") + "/report/").status_code == 404


def test_whatever_a_job_wrote_is_shown_and_breaks_no_page() -> None:
    strange = {
        "a": [1, [2, {"b": None}]],
        "steps": [{"x": {"y": [True, "z" * 999]}}, {"w": 1e9}],
        "": {"": []},
        "t": {"u": [{"v": 1}]},
    }
    found = sections(strange)
    assert [each.title for each in found] == ["", "A", "Steps", "", "T", "T: U"]
    assert found[2].columns == ("X", "W") and len(found[2].rows[0][0]) == 300
    ad = ad_sections('ClusterId = 7\nZ = "q"\nRequestMemory=2000\nnonsense\n')
    assert ad[0].facts == [("ClusterId", "7"), ("RequestMemory", "2000")]
    assert ad[1].rows == [("ClusterId", "7"), ("RequestMemory", "2000"), ("Z", '"q"')] and ad_sections("") == []


def test_operations_of_a_dag_are_offered_where_it_is_shown(operator: Client, reader: Client, built: Scene) -> None:
    dag = DAG.objects.get(workflow__request=built.active)
    shown = operator.get(f"/dags/{dag.pk}/").content.decode()
    verbs = [link.partition("/verb/")[2].partition("/")[0] for link in links(shown, "part-head") if "/verb/" in link]
    assert verbs[:2] == ["hold", "leave-sites"] and "remove" in verbs
    assert "/verb/" not in reader.get(f"/dags/{dag.pk}/").content.decode()
    assert f"/dags/{dag.pk}/" in links(reader.get(f"/requests/{built.active.request_name}/").content.decode(), "part-dag")
    DAG.objects.filter(pk=dag.pk).update(submit_dir="/nowhere", completed_at=timezone.now(), status=DAGStatus.STOPPED)
    assert "not written yet, or removed" in text(reader.get(f"/dags/{dag.pk}/").content.decode(), "part-log")
