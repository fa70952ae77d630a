"""What an output dataset lacks: a number on the request's page, with reasons one click further, and as a lumi JSON over REST."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone
from psycopg.types.range import Int8Range
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning.specs import ExclusionKind, SplittingAlgo
from outputs_app.models import OutputFile, ProcessingBlock, Validity
from requests_app.models import InputFile, InputLumis, LumiFate, Request, RequestStatus, Workflow
from requests_app.selectors.missing_lumis import datasets_of, missing_lumis
from requests_app.work.spec import spec_to_json
from tests.support.html import links, text
from tests.support.rows import dag_row, input_spec, new_block, request_row, unit_row, workflow_row
from tests.support.scene import Scene

pytestmark = pytest.mark.django_db
DONE = {"state": WorkUnitState.DONE, "manifest_sha256": "0" * 64, "fence": 1, "done_at": timezone.now()}


def _split(algorithm: SplittingAlgo, **size: int) -> ProcessingBlock:
    """A block of a request with input of that splitting."""
    block = new_block()
    workflow = block.workflow
    DAG.objects.filter(workflow=workflow).update(status=DAGStatus.COMPLETED)
    WorkUnit.objects.filter(workflow=workflow).update(state=WorkUnitState.ABANDONED)
    spec = input_spec(workflow.request_id, algorithm=algorithm, **size)
    workflow.spec, workflow.input_dataset = spec_to_json(spec), "/Input/Era-v1/RAW"
    workflow.requested_events = 0
    workflow.save()
    return block


def _claim(unit: WorkUnit, first: int, last: int, *, live: bool = True) -> None:
    number = unit.workflow.number
    WorkUnitClaim.objects.create(
        unit=unit, kind=WorkUnitClaim.KIND_RUN_LUMIS, scope=number, run=7, first=first, last=last, live=live
    )


def _by_lumi() -> tuple[Request, ProcessingBlock]:
    """Run 7: 1-10 are done, 11-20 run, 21-25 are unaccounted, 26-30 given back, 31-40 left, 41-44 excluded, 45 is refused."""
    block = _split(SplittingAlgo.LUMI_BASED, lumis_per_job=10)
    workflow = block.workflow
    for fate, first, last in ((LumiFate.WANTED, 1, 40), (LumiFate.EXCLUDED, 41, 44), (LumiFate.REFUSED, 45, 45)):
        reason = "it lies in two files that no site has" if fate == LumiFate.REFUSED else ""
        InputLumis.objects.create(workflow=workflow, run=7, span=Int8Range(first, last, "[]"), fate=fate, reason=reason)
    dag = dag_row(workflow)
    _claim(unit_row(dag, 10, **DONE), 1, 10)
    _claim(unit_row(dag, 11), 11, 20)
    _claim(unit_row(dag, 12, state=WorkUnitState.DONE_UNACCOUNTED, problem="no manifest"), 21, 25)
    _claim(unit_row(dag, 13, state=WorkUnitState.FAILED), 26, 30, live=False)
    return workflow.request, block


def _file(block: ProcessingBlock, name: str, lumis: range, validity: Validity) -> None:
    OutputFile.objects.create(
        lfn=f"/store/data/{name}.root", dataset=block.dataset, block=block,
        unit=WorkUnit.objects.filter(workflow=block.workflow)[0],
        rse="T2_DE_DESY", size_bytes=1, adler32="0" * 8, events=10, lumis={"7": [[lumi, 1] for lumi in lumis]}, validity=validity,
    )  # fmt: skip


def test_each_missing_lumi_has_one_reason_and_all_are_a_lumi_json(reader: Client) -> None:
    request, block = _by_lumi()
    _file(block, "good", range(1, 8), Validity.VALID)
    _file(block, "lost", range(5, 10), Validity.INVALID)
    path = f"/requests/{request.request_name}/"
    on_page = reader.get(path).content.decode()
    (address,) = {link for link in links(on_page, "part-head") if "missing-lumis" in link}
    assert "37 lumis missing" in text(on_page, "part-head")  # 35 without the invalid file's 8 and 9
    page = reader.get(address.replace("&amp;", "&")).content.decode()
    said = text(page)
    assert "37 of 45 lumis" in said and "it lies in two files that no site has" in said and "7:11-20" in said
    api = APIClient()
    api.cookies = reader.cookies
    asked = f"/api/v1{path.rstrip('/')}/missing-lumis?dataset={quote(block.dataset.name)}"
    answer = api.get(asked).json()
    numbers = {each["reason"]: (each["number"], each["lumis"]) for each in answer["reasons"]}
    assert numbers == {
        "invalid": (2, {"7": [[8, 9]]}),
        "unaccounted": (5, {"7": [[21, 25]]}),
        "planned": (10, {"7": [[11, 20]]}),
        "given_back": (5, {"7": [[26, 30]]}),
        "left": (10, {"7": [[31, 40]]}),
        "refused": (1, {"7": [[45, 45]]}),
        "excluded": (4, {"7": [[41, 44]]}),
    }
    assert (answer["missing"], answer["lumis"]) == (37, {"7": [[8, 9], [11, 45]]})
    alone = api.get(asked.replace("missing-lumis?", "missing-lumis.json?") + "&reason=refused")
    assert alone.json() == {"7": [[45, 45]]} and alone["Content-Disposition"].endswith('.lumis.json"')
    assert api.get(asked.replace("missing-lumis?", "missing-lumis.json?") + "&reason=bored").status_code == 400
    assert api.get(asked + "x").status_code == 404 and api.get(asked.partition("?")[0]).status_code == 400
    Request.objects.filter(pk=request.pk).update(status=RequestStatus.FAILED)
    over = missing_lumis(Request.objects.get(pk=request.pk), datasets_of(request)[0])
    assert ("given_up", 15) in [(each.reason, each.number) for each in over.reasons]


def test_of_a_request_split_by_files_lumis_are_those_of_files_that_are_not_done(reader: Client) -> None:
    block = _split(SplittingAlgo.FILE_BASED, files_per_job=1)
    workflow = block.workflow
    out = {"excluded_at": timezone.now(), "excluded_reason": "gone", "excluded_by": "olga", "excluded_kind": ExclusionKind.LOST}
    files = [
        InputFile.objects.create(
            workflow=workflow, lfn=f"/store/data/{number}.root", block_name="/a/b/RAW#1", size_bytes=1, events=100,
            lumis={"7": [[10 * number + 1, 10 * number + 10]]}, **(out if number == 3 else {}),
        )
        for number in range(4)
    ]  # fmt: skip
    dag = dag_row(workflow)
    for index, (file, more) in enumerate(((files[0], DONE), (files[1], {}))):
        unit = unit_row(dag, 10 + index, **more)
        WorkUnitClaim.objects.create(
            unit=unit, kind=WorkUnitClaim.KIND_FILE_EVENTS, input_file=file, scope=file.pk, run=0, first=0, last=99, events=100
        )
    found = missing_lumis(workflow.request, datasets_of(workflow.request)[0])
    numbers = {str(each.reason): each.lumis for each in found.reasons}
    assert numbers == {"planned": {7: ((11, 20),)}, "left": {7: ((21, 30),)}, "excluded": {7: ((31, 40),)}}
    assert (found.wanted, found.missing) == (40, 30)
    assert "30 lumis missing" in text(reader.get(f"/requests/{workflow.request_id}/").content.decode(), "part-head")


def test_of_a_generation_events_are_counted(reader: Client, built: Scene) -> None:
    said = text(reader.get(f"/requests/{built.active.request_name}/").content.decode(), "part-head")
    assert "196,800 events missing" in said
    workflow = Workflow.objects.get(request=built.active)
    dataset = datasets_of(built.active)[0]
    assert [(str(each.reason), each.number) for each in missing_lumis(built.active, dataset).reasons] == [("planned", 196_800)]
    address = f"/requests/{workflow.request_id}/missing-lumis/?dataset={quote(dataset.name)}"
    assert "Planned or running" in text(reader.get(address).content.decode())


def test_it_costs_the_same_for_any_number_of_files(django_assert_max_num_queries: Any) -> None:
    request, block = _by_lumi()
    for number in range(3):
        _file(block, f"lost{number}", range(5, 10), Validity.INVALID)
    dataset = datasets_of(request)[0]
    with django_assert_max_num_queries(8):
        missing_lumis(request, dataset)


def test_a_dataset_of_another_request_is_not_shown_and_a_page_without_one_is_none(reader: Client, built: Scene) -> None:
    other = request_row(RequestStatus.ACTIVE)
    workflow_row(other)
    name = quote(datasets_of(built.active)[0].name)
    assert reader.get(f"/requests/{other.request_name}/missing-lumis/?dataset={name}").status_code == 404
    assert reader.get(f"/requests/{other.request_name}/missing-lumis/?dataset=%00").status_code == 404
