"""DAGs and work units in the admin: few columns, short ids, and nothing that is not known."""

from __future__ import annotations

import pytest
from django.test import Client

from dags_app.models import DAG, WorkUnitState
from tests.support.html import text
from tests.support.rows import dag_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def dag(db: None) -> DAG:
    """One with a unit."""
    dag = dag_row(
        workflow_row(),
        units_done=1,
        total_work_units=4,
        nodes_idle=5,
        nodes_running=6,
        nodes_held=7,
        queue_birthdate=1_700_000_000,
    )
    unit_row(dag, state=WorkUnitState.PLANNED, problem="no manifest")
    return dag


def test_a_dag_has_a_short_id_in_lists_and_its_whole_one_as_a_title_and_on_its_page(staff: Client, dag: DAG) -> None:
    html = staff.get("/admin/dags_app/dag/").content.decode()
    said = text(html, "result_list")
    assert str(dag.pk)[:8] in said
    assert str(dag.pk) not in said
    assert f'title="{dag.pk}"' in html
    assert "1 of 4 5, 6, 7" in said
    assert f"ID: {dag.pk}" in text(staff.get(f"/admin/dags_app/dag/{dag.pk}/change/").content.decode())


def test_a_link_to_a_dag_is_short_too(staff: Client, dag: DAG) -> None:
    dag.history.create(event_type="created", to_status="ready")
    html = staff.get("/admin/dags_app/daghistory/").content.decode()
    assert str(dag.pk)[:8] in text(html, "result_list")
    assert str(dag.pk) not in text(html, "result_list")
    assert "Select DAG history entry to view" in text(html)


def test_a_dags_page_tells_its_queues_birth_as_a_moment(staff: Client, dag: DAG) -> None:
    said = text(staff.get(f"/admin/dags_app/dag/{dag.pk}/change/").content.decode())
    assert "Queue birthdate: 2023-11-14 22:13:20 UTC" in said
    assert "Merge groups: 10" in said


def test_a_unit_that_may_run_is_not_called_planned_alone(staff: Client, dag: DAG) -> None:
    said = text(staff.get("/admin/dags_app/workunit/").content.decode(), "result_list")
    assert "Planned or running no manifest" in said
    unit = dag.work_units.get()
    assert unit.state == "planned"
    page = text(staff.get(f"/admin/dags_app/workunit/{unit.pk}/change/").content.decode())
    assert "DAG:" in page and "RSE:" in page and "Manifest SHA256:" in page
