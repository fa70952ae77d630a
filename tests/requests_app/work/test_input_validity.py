"""Input that is INVALID in DBS is read by nobody: not at import, not between two calls of it, not in a later round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import WorkUnitClaim
from outputs_app.models import FindingKind, IntegrityCase
from requests_app.models import Event, HoldCode, InputFile, Request, RequestStatus
from requests_app.services import input_files_restore, request_release
from requests_app.work.ledger import ledger_check, ledger_of
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.catalogues import ScriptedDbs, Source, SourceFile
from tests.support.scripted.progress import all_planned, fresh, run_on, status
from tests.support.scripted.world import World
from wms2.adapters.types import BlockInfo

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
CERN = "T2_CH_CERN"
DATASET = "/Valid/Era-v1/RAW"
HERE = "tests/requests_app/work/test_input_validity.py"
FILES, EVENTS, LUMIS = {"files_per_job": 1}, {"events_per_job": 100}, {"lumis_per_job": 1}


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch, INPUT_REREAD_SECONDS="300")
    world.furnish()
    _four_files(world)
    return world


@once
def _four_files(world: World) -> None:
    world.sources[DATASET] = Source()
    for number, name in enumerate("abcd"):
        put(world, name, number + 1)


def put(world: World, name: str, lumi: int, block: str = "") -> None:
    """A file in a block of its own, unless told otherwise."""
    source, of = world.sources[DATASET], f"{DATASET}#{block or name}"
    source.blocks.setdefault(of, []).append(SourceFile(lfn(name), 100, 1, ((1, lumi),)))
    source.locations[of] = (CERN,)


def lfn(name: str) -> str:
    return f"/store/data/{name}.root"


def ask(world: World, **changes: Any) -> Request:
    return world.request(documents.reprocessing(DATASET, **({"files_per_job": 1} | changes)))


@once
def opened(world: World) -> Request:
    """All that is there is done; more may come."""
    request = ask(world, OpenRunningTimeout=600)
    run_on(world, request, cycles=4)
    return request


def excluded(request: Request) -> dict[str, str]:
    rows = InputFile.objects.filter(workflow__request=request, excluded_at__isnull=False)
    return {row.lfn.rpartition("/")[2].removesuffix(".root"): row.excluded_reason for row in rows}


def claimed(request: Request) -> set[str]:
    """Files of which a unit has taken anything, by name or by its lumis."""
    claims = WorkUnitClaim.objects.filter(unit__workflow__request=request)
    names = {row.input_file.lfn for row in claims if row.input_file is not None}
    lumis = {lumi for row in claims if row.input_file is None for lumi in range(row.first, row.last + 1)}
    rows = InputFile.objects.filter(workflow__request=request)
    return names | {row.lfn for row in rows if lumis & {lumi for spans in row.lumis.values() for lumi, _ in spans}}


def during(dbs: ScriptedDbs, patch: pytest.MonkeyPatch, operation: str, act: Callable[[str], None]) -> None:
    """Somebody else does that before each such call is answered."""
    real = getattr(dbs, operation)

    def meanwhile(name: str, *args: Any, **more: Any) -> Any:
        act(name)
        return real(name, *args, **more)

    patch.setattr(dbs, operation, meanwhile)


@pytest.mark.parametrize(
    "split",
    [
        FILES,
        LUMIS,
        pytest.param(
            EVENTS,
            marks=pytest.mark.deep(f"{HERE}::test_the_rest_of_a_file_of_which_a_part_is_done_is_not_planned_nor_what_is_gone"),
        ),
    ],
)
def test_a_file_that_became_invalid_after_the_import_is_planned_by_no_round(world: World, split: dict[str, int]) -> None:
    request = ask(world, **({"files_per_job": 0} | split))
    world.evaluate(request, steps=1)
    assert request.workflow.input_files.count() == 4
    world.sources[DATASET].invalid.add(lfn("b"))
    assert run_on(world, request) is S.HELD, request.waiting_for
    assert request.hold_code == HoldCode.EXCLUDED, "one of four is more than may be left out"
    assert set(excluded(request)) == {"b"}
    assert excluded(request)["b"].startswith("INVALID in DBS, found on ")
    assert claimed(request) == {lfn(name) for name in "acd"}
    assert any("1 file left out" in each and lfn("b") in each for each in request.warnings)
    assert [event.data["files"] for event in Event.objects.filter(request=request, kind="input.excluded")] == [[lfn("b")]]
    ledger_check(ledger_of(request.workflow))


def test_a_file_that_became_invalid_between_two_rounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requests_app.work.planner.MAX_NODES_PER_DAG", 7)
    request = ask(world)
    world.cycle()
    before = claimed(request)
    assert 0 < len(before) < 4, "the first round takes a part"
    gone = min({lfn(name) for name in "abcd"} - before)
    world.sources[DATASET].invalid.add(gone)
    assert run_on(world, request) is S.HELD
    assert gone not in claimed(request)
    world.sources[DATASET].invalid.clear()
    input_files_restore(request=request, lfns=[gone], actor="olga", reason="it is valid again")
    request_release(request=request, actor="olga", reason="it is valid again")
    assert all_planned(world, request)
    assert claimed(request) == {lfn(name) for name in "abcd"}


def test_the_rest_of_a_file_of_which_a_part_is_done_is_not_planned_nor_what_is_gone(world: World) -> None:
    source = world.sources[DATASET]
    source.blocks[f"{DATASET}#a"] = [SourceFile(lfn("a"), 1000, 11)]
    request = ask(world, files_per_job=0, events_per_job=100)
    world.cycle()
    done = ledger_of(request.workflow).planned_events
    assert 0 < done < 1000, "the first round takes a part"
    source.invalid.add(lfn("a"))
    source.blocks[f"{DATASET}#c"].clear()
    assert run_on(world, request) is S.HELD
    assert (request.hold_code, excluded(request).keys()) == (HoldCode.EXCLUDED, {"a", "c"})
    assert excluded(request)["c"].startswith("not in DBS any more, found on "), "it is in no block any more"
    claims = WorkUnitClaim.objects.filter(unit__workflow=request.workflow, input_file__lfn=lfn("a"))
    assert sum(claims.values_list("events", flat=True)) == done
    ledger_check(ledger_of(request.workflow))


@pytest.mark.parametrize(
    "operation",
    [
        "file_lumis",
        pytest.param(
            "files",
            marks=pytest.mark.deep(f"{HERE}::test_a_file_that_becomes_invalid_between_two_calls_of_one_import[file_lumis]"),
        ),
    ],
)
def test_a_file_that_becomes_invalid_between_two_calls_of_one_import(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Its block is read again; what is INVALID then is no input, and is named as missing; so is a block with fewer valid files
    than DBS counts."""
    put(world, "d2", 5, block="d")
    blocks = world.dbs.blocks

    def with_counts(dataset: str) -> Any:
        counted = {f"{DATASET}#b": 3}
        return iter([BlockInfo(b.block_name, False, counted.get(b.block_name, b.file_count), 1, "") for b in blocks(dataset)])

    monkeypatch.setattr(world.dbs, "blocks", with_counts)
    during(
        world.dbs, monkeypatch, operation, lambda name: world.sources[DATASET].invalid.update({lfn("d")} if "#d" in name else ())
    )
    request = ask(world)
    assert all_planned(world, request)
    assert claimed(request) == {lfn(name) for name in ("a", "b", "c", "d2")}
    (warning,) = [each for each in request.warnings if "fewer files are valid" in each]
    assert f"{DATASET}#d (1 of 2)" in warning
    assert f"{DATASET}#b (1 of 3)" in warning


def test_a_block_that_keeps_changing_is_read_when_it_does_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    invalid = world.sources[DATASET].invalid
    during(world.dbs, monkeypatch, "file_lumis", lambda _: invalid.symmetric_difference_update({lfn("a")}))
    request = ask(world)
    world.evaluate(request, steps=1)
    assert status(request) is S.SUBMITTED
    assert "change while they are read" in request.last_error
    monkeypatch.undo()


def short_once(
    dbs: ScriptedDbs, patch: pytest.MonkeyPatch, operation: str, leave: Callable[[Any], bool], answers: int = 1
) -> None:
    """The first such answers in which there is any lack these rows: as of a block that is being registered, or from a copy of
    the database that is behind."""
    real, short_ones = getattr(dbs, operation), [True] * answers

    def short(name: str, *args: Any, **more: Any) -> Any:
        rows = list(real(name, *args, **more))
        left = [row for row in rows if not leave(row)]
        return iter(left if len(left) < len(rows) and short_ones and short_ones.pop() else rows)

    patch.setattr(dbs, operation, short)


@pytest.mark.parametrize("split", [FILES, EVENTS, LUMIS])
@pytest.mark.parametrize("part", [False, True])
def test_lumis_that_one_answer_lacks_are_read_and_no_file_is_left_out_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch, split: dict[str, int], part: bool
) -> None:
    source = world.sources[DATASET]
    source.blocks[f"{DATASET}#a"] = [
        SourceFile(lfn("a"), 100, 21, counts=(10,) * 10),
        SourceFile(lfn("e"), 100, 31, counts=(10,) * 10),
    ]
    short_once(world.dbs, monkeypatch, "file_lumis", lambda row: row.lfn == lfn("e") and (not part or row.lumi > 33))
    request = ask(world, **({"files_per_job": 0} | split))
    world.evaluate(request, steps=1)
    row = request.workflow.input_files.get(lfn=lfn("e"))
    assert (row.lumis, row.excluded_reason) == ({"1": [[31, 40]]}, "")


def test_a_block_that_the_last_list_of_an_open_input_lacks_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = opened(world)
    put(world, "late", 9)
    short_once(world.dbs, monkeypatch, "blocks", lambda block: block.block_name == f"{DATASET}#late")
    world.clock.advance(700)
    run_on(world, request, cycles=4)
    assert lfn("late") in claimed(request)


def test_a_block_that_one_list_lacks_is_read_and_files_that_an_answer_lacks_after_the_import_are_left_out_by_no_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_once(world.dbs, monkeypatch, "blocks", lambda block: block.block_name == f"{DATASET}#c")
    request = ask(world)
    world.evaluate(request, steps=1)
    assert "change while they are read" in fresh(request).last_error
    world.clock.advance(600)
    world.evaluate(request, steps=1)
    assert (request.workflow.input_files.count(), fresh(request).last_error) == (4, ""), "imported whole"
    short_once(world.dbs, monkeypatch, "files", lambda row: row.lfn == lfn("b"), answers=2)  # names, and rows
    world.cycle()
    assert "change while they are read" in fresh(request).last_error
    assert all_planned(world, request)
    assert (excluded(request), claimed(request)) == ({}, {lfn(name) for name in "abcd"})


def test_parents_that_one_answer_lacks_are_read_and_one_that_a_list_lacks_is_as_dbs_says_of_it_by_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents, source = "/Parents/Era-v1/RAW", world.sources[DATASET]
    world.sources[parents] = Source({f"{parents}#p": [SourceFile(lfn("pb"), 100, 2)]}, {f"{parents}#p": (CERN,)})
    source.blocks[f"{DATASET}#b"] = [replace(each, parents=(lfn("pb"),)) for each in source.blocks[f"{DATASET}#b"]]
    source.parents = {lfn("pb"): (CERN,)}
    short_once(world.dbs, monkeypatch, "file_parents", lambda row: row.lfn == lfn("b"))
    short_once(world.dbs, monkeypatch, "valid_lfns", lambda each: each == lfn("pb"))
    request = ask(world, IncludeParents=True)
    assert all_planned(world, request)
    assert request.workflow.input_files.get(lfn=lfn("b")).parents == [lfn("pb")]
    assert request.workflow.input_files.get(lfn=lfn("a")).parents == [], "it has none, as two answers say"
    assert excluded(request) == {}


def test_a_dataset_that_is_not_live_is_not_imported(world: World) -> None:
    requests = {}
    for access_type in ("INVALID", "DEPRECATED", "DELETED"):
        dataset = f"/{access_type}/Era-v1/RAW"
        world.sources[dataset] = replace(world.sources[DATASET], access_type=access_type)
        requests[access_type] = world.request(documents.reprocessing(dataset, files_per_job=1))
    world.cycle()
    for access_type, request in requests.items():
        assert status(request) is S.HELD
        assert f"/{access_type}/Era-v1/RAW is {access_type} in DBS" in request.hold_reason


def test_half_a_dataset_is_never_taken_for_the_whole_and_one_that_is_not_live_after_its_import_holds_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes INVALID while it is imported: held, and read on where it stopped once it is VALID again."""
    source = world.sources[DATASET]

    def turn(name: str) -> None:
        if name.endswith("#c"):
            source.access_type = "INVALID"

    with monkeypatch.context() as patch:
        during(world.dbs, patch, "files", turn)
        request = ask(world)
        assert run_on(world, request) is S.HELD
    assert f"{DATASET} is INVALID in DBS" in request.hold_reason
    source.access_type = "VALID"
    request_release(request=request, actor="olga", reason="it is valid again")
    world.evaluate(request, steps=1)
    assert (status(request), request.workflow.input_files.count()) == (S.QUEUED, 4)
    source.access_type = "INVALID"
    assert run_on(world, request) is S.HELD
    assert (request.hold_code, claimed(request), excluded(request)) == (HoldCode.REFUSED, set(), {})
    source.access_type = "VALID"
    request_release(request=request, actor="olga", reason="it is valid again")
    assert all_planned(world, request)
    assert claimed(request) == {lfn(name) for name in "abcd"}


def test_an_open_input_that_is_not_live_is_neither_read_nor_closed(world: World) -> None:
    request = opened(world)
    world.sources[DATASET].access_type = "INVALID"
    put(world, "late", 9)
    world.clock.advance(2000)
    run_on(world, request, cycles=3)
    assert status(request) is S.ACTIVE
    assert "INVALID" in request.waiting_for and request.alert_code == "input_unreadable"
    world.sources[DATASET].access_type = "VALID"
    run_on(world, request, cycles=4)
    assert lfn("late") in claimed(request)


def test_a_new_file_that_becomes_invalid_while_an_open_input_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = opened(world)
    put(world, "late", 9)
    put(world, "later", 10, block="late")
    invalid = world.sources[DATASET].invalid
    during(world.dbs, monkeypatch, "file_lumis", lambda name: invalid.add(lfn("late")))
    world.clock.advance(300)
    run_on(world, request, cycles=5)
    assert lfn("late") not in claimed(request) and lfn("later") in claimed(request)
    assert any(f"{DATASET}#late (1 of 2)" in each for each in request.warnings)


def test_a_file_that_waits_for_a_site_and_became_invalid_waits_no_longer(world: World) -> None:
    world.sources[DATASET].locations[f"{DATASET}#a"] = ()
    request = ask(world)
    run_on(world, request, cycles=4)
    assert status(request) is S.QUEUED and "waits for a site" in request.waiting_for
    world.sources[DATASET].invalid.add(lfn("a"))
    world.clock.advance(2000)
    assert run_on(world, request) is S.HELD
    assert set(excluded(request)) == {"a"}


@pytest.mark.parametrize(
    ("split", "dataset"),
    [
        (FILES, False),
        (LUMIS, True),
        *(
            pytest.param(
                split,
                dataset,
                marks=pytest.mark.deep(f"{HERE}::test_a_file_whose_parent_became_invalid_is_read_by_no_job_with_parents"),
            )
            for split, dataset in ((FILES, True), (LUMIS, False))
        ),
    ],
)
def test_a_file_whose_parent_became_invalid_is_read_by_no_job_with_parents(
    world: World, split: dict[str, int], dataset: bool
) -> None:
    parents, source = "/Parents/Era-v1/RAW", world.sources[DATASET]
    files = [SourceFile(lfn(f"p{name}"), 100, number + 1) for number, name in enumerate("abcd")]
    world.sources[parents] = Source({f"{parents}#p": files}, {f"{parents}#p": (CERN,)})
    for name in "abcd":
        source.blocks[f"{DATASET}#{name}"] = [
            replace(each, parents=(lfn(f"p{name}"), "/store/unknown.root")) for each in source.blocks[f"{DATASET}#{name}"]
        ]
        source.parents |= {lfn(f"p{name}"): (CERN,), "/store/unknown.root": (CERN,)}
    request = ask(world, IncludeParents=True, **({"files_per_job": 0} | split))
    world.evaluate(request, steps=1)
    if dataset:
        world.sources[parents].access_type = "INVALID"
    else:
        world.sources[parents].invalid.update({lfn("pb"), lfn("pc")})
    assert run_on(world, request) is S.HELD
    assert excluded(request).keys() == (set("abcd") if dataset else {"b", "c"})
    why = f"{parents} is INVALID in DBS" if dataset else "INVALID in DBS"
    assert excluded(request)["b"].startswith(f"its parent {lfn('pb')}: {why}, found on ")


def test_outputs_of_a_file_that_became_invalid_are_cases_by_what_dbs_says(world: World) -> None:
    """Our row of the input still says what it was at import."""
    request = ask(world)
    world.cycle()
    assert lfn("a") in claimed(request)
    world.sources[DATASET].invalid.add(lfn("a"))
    assert run_on(world, request) is S.WAITING_INTEGRITY, request.waiting_for
    cases = IntegrityCase.objects.filter(request=request)
    assert {case.prognosis for case in cases} == {FindingKind.PARENT_MISSING}
    assert "made from" in str(cases[0].evidence)
