"""Which DAG directories are packed, and that the pages and REST still show what was in them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG, LIVE_DAG, DAGKind, DAGStatus
from dags_app.packs import pack_path
from dags_app.payload.contract.layout import attempts_name, report_name
from dags_app.services.orphans import ENDED, UNKNOWN
from outputs_app.models import SETTLED_EFFECT, EffectState
from requests_app.lifecycle import packing
from requests_app.lifecycle.packing import dags_pack
from requests_app.models import EVALUATED, Request, RequestStatus
from tests.support.rest_clients import reader
from tests.support.rows import dag_row, new_effect, request_row, schedd_row, workflow_row
from tests.support.web_clients import operator as page_operator

__all__ = ["page_operator", "reader"]
pytestmark = pytest.mark.django_db
S = RequestStatus
LONG_AGO = timezone.now() - timedelta(days=100)


@pytest.fixture(name="ended")
def _ended(tmp_path: Path) -> DAG:
    return ended_dag(tmp_path)


def ended_dag(place: Path, of: RequestStatus = S.COMPLETED, **fields: Any) -> DAG:
    """The DAG of a request that has been at its end for long, with its directory."""
    request = request_row(of, status_since=LONG_AGO)
    dag = dag_row(workflow_row(request), **{"status": DAGStatus.PARTIAL} | fields)
    directory = place / request.request_name / str(dag.pk)
    (directory / "mg_000000").mkdir(parents=True)
    (directory / "workflow.dag").write_text("JOB a b\n")
    (directory / "workflow.dag.dagman.out").write_text("the log of DAGMan\n")
    (directory / "workflow.dag.rescue001").write_text("")
    dag.submit_dir, dag.dag_file_path = str(directory), str(directory / "workflow.dag")
    dag.save()
    return dag


def is_packed(dag: DAG) -> bool:
    dag.refresh_from_db()
    directory = Path(dag.submit_dir)
    assert (dag.packed_at is not None, directory.is_dir()) == (pack_path(directory).exists(), not pack_path(directory).exists())
    return dag.packed_at is not None


@pytest.mark.parametrize("status", [status for status in packing.AT_AN_END if status != S.CLEANED])
def test_directories_of_requests_at_an_end_are_packed(status: RequestStatus, tmp_path: Path) -> None:
    dag = ended_dag(tmp_path, status)
    assert dags_pack() == 1
    assert is_packed(dag)
    assert dags_pack() == 0


@pytest.mark.parametrize("status", [*EVALUATED, S.NEW, S.CLEANED])  # the directories of a cleaned one are gone
def test_what_may_be_rescued_or_is_looked_at_stays(status: RequestStatus, tmp_path: Path) -> None:
    dag = ended_dag(tmp_path, status)
    assert dags_pack() == 0
    assert not is_packed(dag)


def test_the_end_must_be_some_days_ago(ended: DAG) -> None:
    Request.objects.update(status_since=timezone.now() - timedelta(days=packing.PACK_AFTER_DAYS - 1))
    assert dags_pack() == 0
    assert not is_packed(ended)
    Request.objects.update(status_since=LONG_AGO)
    assert dags_pack() == 1


@pytest.mark.parametrize(
    "fields",
    [
        *({"status": status} for status in LIVE_DAG),
        {"lost_confirmed_at": LONG_AGO, "outcome": {"lost": True}},
        {"outcome": {"unproved": True}},
    ],
    ids=[*LIVE_DAG, "lost", "unproved"],
)
def test_one_whose_jobs_may_still_be_there_stays(fields: dict[str, Any], tmp_path: Path) -> None:
    dag = ended_dag(tmp_path, S.FAILED, **fields)
    assert dags_pack() == 0
    assert not is_packed(dag)


@pytest.mark.parametrize("state", [s for s in EffectState if s not in SETTLED_EFFECT])
def test_one_whose_request_owes_something_stays_until_it_is_done(state: EffectState, ended: DAG) -> None:
    effect = new_effect(state, request=ended.workflow.request)
    assert dags_pack() == 0
    effect.state = EffectState.DONE
    effect.save()
    assert dags_pack() == 1


def test_an_effect_that_is_given_up_with_its_epoch_holds_nothing(ended: DAG) -> None:
    new_effect(EffectState.PENDING, request=ended.workflow.request)
    Request.objects.update(epoch=2)
    assert dags_pack() == 1


def test_one_with_jobs_in_a_queue_stays(ended: DAG) -> None:
    schedd = schedd_row(orphans=[{"dag_id": str(ended.pk), "why": ENDED}, {"dag_id": "no id", "why": UNKNOWN}])
    assert dags_pack() == 0
    schedd.orphans = []
    schedd.save()
    assert dags_pack() == 1


def test_a_directory_of_several_submissions_is_packed_once_when_all_have_ended(ended: DAG) -> None:
    rescue = dag_row(
        ended.workflow, DAGStatus.RUNNING, kind=DAGKind.FAILURE_RESCUE, parent_dag=ended, directory_id=ended.pk,
        submit_dir=ended.submit_dir,
    )  # fmt: skip
    assert dags_pack() == 0
    DAG.objects.filter(pk=rescue.pk).update(status=DAGStatus.COMPLETED)
    assert dags_pack() == 1
    assert is_packed(rescue)
    assert is_packed(ended)


def test_one_that_cannot_be_packed_is_told_does_not_hold_up_others_and_is_tried_a_day_later(ended: DAG, tmp_path: Path) -> None:
    link = Path(ended.submit_dir) / "link"
    link.symlink_to("workflow.dag")
    other = ended_dag(tmp_path)
    assert dags_pack() == 1
    assert is_packed(other)
    assert not is_packed(ended)
    assert "neither a file nor a directory" in ended.pack_problem
    link.unlink()
    assert dags_pack() == 0
    DAG.objects.filter(pk=ended.pk).update(pack_tried_at=timezone.now() - packing.TRY_AGAIN - timedelta(minutes=1))
    assert dags_pack() == 1
    assert is_packed(ended)
    assert ended.pack_problem == ""


def test_what_somebody_packs_nobody_else_begins(ended: DAG) -> None:
    assert packing._claim() is not None
    assert packing._claim() is None


def test_after_a_minute_the_rest_is_left_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "RUN_SECONDS", 0)
    ended_dag(tmp_path)
    assert dags_pack() == 0


def test_rest_and_page_show_what_is_in_a_pack(ended: DAG, reader: APIClient, page_operator: Client) -> None:
    unit = Path(ended.submit_dir) / "mg_000000"
    (unit / "group.dag.dagman.out").write_text("the unit's log\n")
    (unit / attempts_name("proc_0")).write_text('{"attempt": 0, "job_id": "7.0"}\n')
    (unit / report_name("proc_0", 0)).write_text('{"job_id": "7.0"}\n')
    node = "units/mg_000000/nodes/proc_0"
    parts = ("logs", "logs?unit=mg_000000", "nodes", f"{node}/attempts", f"{node}/attempts/0/jobs/7.0/report")
    addresses = [f"/api/v1/dags/{ended.pk}/{part}" for part in parts]
    before = [reader.get(address).json() for address in addresses]
    assert before[0]["tail"]["lines"] == ["the log of DAGMan"]
    assert "7.0" in str(before[3])
    assert "7.0" in str(before[4])
    assert dags_pack() == 1
    after = [reader.get(address).json() for address in addresses]
    for was, now in zip(before, after, strict=True):
        for answer in (was, now):
            for file in answer.get("files", ()):
                file.pop("modified_at")  # a zip keeps two seconds
    assert after == before
    page = page_operator.get(f"/requests/{ended.workflow.request_id}/").content.decode()
    assert "the log of DAGMan" in page
    assert f"{ended.submit_dir}.zip, packed" in page
