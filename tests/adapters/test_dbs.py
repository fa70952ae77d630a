"""Registration in and reading from the simulated DBS, with calls lost on the way."""

from __future__ import annotations

import tracemalloc
import uuid
from dataclasses import replace

import pytest
from pytest_httpserver import HTTPServer

from tests.adapters.simulators import READER, WRITER, Fate, Proxy, Simulators
from wms2.adapters.dbs import DatasetSpec, Dbs, DbsFile, OutputConfig
from wms2.adapters.dbs_queries import dbs_fault
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

CONFIG = OutputConfig("cmsRun", "CMSSW_14_0_0", "76e303993a1c2f842159dbfeeed9a0dd", "RAWSIMoutput", "140X_mcRun3_v1")
SITE = "T2_CH_CERN"


def spec_named(primary: str) -> DatasetSpec:
    return DatasetSpec(
        dataset=f"/{primary}/Run3Winter-Test-v1/GEN-SIM",
        primary_ds_name=primary,
        primary_ds_type="mc",
        processed_ds_name="Run3Winter-Test-v1",
        data_tier="GEN-SIM",
        acquisition_era="Run3Winter",
        processing_version=1,
        physics_group="DataOps",
        output_configs=(CONFIG,),
        prep_id="TOP-1",
    )


def lfn(primary: str, number: int) -> str:
    return f"/store/mc/Run3Winter/{primary}/GEN-SIM/Test-v1/00000/file_{number}.root"


def files_of(primary: str, count: int, first: int = 0) -> list[DbsFile]:
    return [
        DbsFile(
            lfn=lfn(primary, number),
            size_bytes=1000 + number,
            adler32=f"{number:08x}",
            events=30,
            lumis={1: [(10 * number + 1, 10), (10 * number + 2, 20)]},
            output_config=CONFIG,
        )
        for number in range(first, first + count)
    ]


@pytest.fixture
def primary(simulators: Simulators) -> str:
    """A primary dataset of this test's own."""
    simulators.call("POST", f"{WRITER}/datatiers", {"data_tier_name": "GEN-SIM"})
    simulators.call("POST", f"{WRITER}/physicsgroups", {"physics_group_name": "DataOps"})
    return f"P{uuid.uuid4().hex[:12]}"


@pytest.fixture
def dbs(proxy: Proxy) -> Dbs:
    return Dbs(proxy.url + READER, proxy.url + WRITER, timeout_seconds=5.0, sleep=lambda _: None)


@pytest.fixture
def block(dbs: Dbs, primary: str) -> str:
    """An open block in a dataset of this test's own."""
    spec = spec_named(primary)
    dbs.ensure_dataset(spec)
    name = f"{spec.dataset}#{uuid.uuid4()}"
    dbs.open_block(name, SITE)
    return name


def dataset_of(block: str) -> str:
    return block.partition("#")[0]


def test_a_dataset_goes_from_nothing_to_a_closed_block_with_its_files(dbs: Dbs, primary: str) -> None:
    spec = spec_named(primary)
    name = f"{spec.dataset}#{uuid.uuid4()}"
    assert not dbs.dataset_exists(spec.dataset)
    dbs.ensure_dataset(spec)
    assert dbs.dataset_exists(spec.dataset)
    assert dbs.block(name) is None
    dbs.open_block(name, SITE)
    files = files_of(primary, 3)
    assert dbs.register_files(name, spec.dataset, files).registered == 3
    dbs.close_block(name, origin_site="T1_US_FNAL_Disk")
    info = dbs.block(name)
    assert info is not None
    assert (info.is_open, info.file_count, info.size_bytes, info.origin_site) == (False, 3, 3003, "T1_US_FNAL_Disk")
    assert [f.lfn for f in dbs.files(spec.dataset)] == [f.lfn for f in files]
    stored = dbs.block_files(name)[1]
    assert (stored.size_bytes, stored.adler32, stored.events, stored.is_valid) == (1001, "00000001", 30, True)
    assert {(row.lfn, row.run, row.lumi, row.events) for row in dbs.file_lumis(name)} >= {(lfn(primary, 2), 1, 21, 10)}
    assert [b.block_name for b in dbs.blocks(spec.dataset)] == [name]


def test_every_step_may_be_repeated(dbs: Dbs, primary: str, proxy: Proxy) -> None:
    spec = spec_named(primary)
    name = f"{spec.dataset}#{uuid.uuid4()}"
    files = files_of(primary, 2)
    for _ in range(2):
        dbs.ensure_dataset(spec)
        dbs.open_block(name, SITE)
        dbs.register_files(name, spec.dataset, files)
    assert [proxy.sent("POST", api) for api in ("/datasets", "/blocks", "/files")] == [1, 1, 1]
    dbs.close_block(name)
    dbs.close_block(name)
    again = dbs.register_files(name, spec.dataset, files)
    assert (again.registered, again.already_there) == (0, 2)
    info = dbs.block(name)
    assert info is not None and info.file_count == 2


def test_parents_are_registered_with_their_children(dbs: Dbs, primary: str, block: str) -> None:
    parent, child = files_of(primary, 2)
    dbs.register_files(block, dataset_of(block), [parent])
    dbs.register_files(block, dataset_of(block), [replace(child, parents=(parent.lfn,))])
    assert [(row.lfn, row.parent_lfn) for row in dbs.file_parents(block)] == [(child.lfn, parent.lfn)]


def test_a_file_whose_parent_is_unknown_is_refused_with_dbs_own_code(dbs: Dbs, primary: str, block: str) -> None:
    (child,) = files_of(primary, 1)
    with pytest.raises(ServiceRejected) as caught:
        dbs.register_files(block, dataset_of(block), [replace(child, parents=("/store/mc/E/P/TIER/X-v1/0/none.root",))])
    assert caught.value.code == 202


def test_files_for_a_closed_block_are_refused_by_us_since_dbs_would_take_them(
    dbs: Dbs, primary: str, block: str, proxy: Proxy
) -> None:
    dbs.register_files(block, dataset_of(block), files_of(primary, 1))
    dbs.close_block(block)
    posts = proxy.sent("POST", "/files")
    with pytest.raises(ServiceRejected, match=r"is closed and 1 of 2 files are not in it"):
        dbs.register_files(block, dataset_of(block), files_of(primary, 2))
    assert proxy.sent("POST", "/files") == posts
    with pytest.raises(ServiceRejected, match="exists and is closed"):
        dbs.open_block(block, SITE)


def test_what_dbs_answers_with_200_although_it_is_not_there_is_not_found(dbs: Dbs, primary: str) -> None:
    spec = spec_named(primary)
    name = f"{spec.dataset}#{uuid.uuid4()}"
    with pytest.raises(NotFoundInService):
        dbs.close_block(name)
    with pytest.raises(NotFoundInService):
        dbs.register_files(name, spec.dataset, files_of(primary, 1))
    with pytest.raises(NotFoundInService):
        dbs.set_dataset_access_type(spec.dataset, "INVALID")


def test_a_block_of_an_unknown_dataset_keeps_dbs_code(dbs: Dbs, primary: str) -> None:
    with pytest.raises(ServiceRejected) as caught:
        dbs.open_block(f"{spec_named(primary).dataset}#{uuid.uuid4()}", SITE)
    assert caught.value.code == 410


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.HANG])
def test_a_lost_answer_is_settled_by_reading_back_and_nothing_is_sent_twice(
    proxy: Proxy, primary: str, block: str, fate: Fate
) -> None:
    dbs = Dbs(proxy.url + READER, proxy.url + WRITER, timeout_seconds=0.5, sleep=lambda _: None)
    proxy.once("POST", "/files", fate)
    result = dbs.register_files(block, dataset_of(block), files_of(primary, 3))
    assert result.registered == 3
    assert proxy.sent("POST", "/files") == 1
    assert len(dbs.block_files(block)) == 3


def test_valid_files_of_a_dataset_are_counted_whoever_registered_them(dbs: Dbs, primary: str, block: str) -> None:
    dataset = dataset_of(block)
    assert dbs.valid_files(dataset) == 0
    dbs.register_files(block, dataset, files_of(primary, 3))
    assert dbs.valid_files(dataset) == 3
    dbs.invalidate_files([lfn(primary, 1)])
    assert dbs.valid_files(dataset) == 2
    dbs.invalidate_files([lfn(primary, 0), lfn(primary, 2)])
    assert dbs.valid_files(dataset) == 0


def test_what_was_not_done_is_sent_again(dbs: Dbs, primary: str, block: str, proxy: Proxy) -> None:
    proxy.once("POST", "/files", Fate.FAIL, Fate.FAIL)
    dbs.register_files(block, dataset_of(block), files_of(primary, 2))
    assert proxy.sent("POST", "/files") == 3
    assert len(dbs.block_files(block)) == 2


def test_a_call_that_gave_up_half_way_goes_on_where_it_stopped(dbs: Dbs, primary: str, block: str, proxy: Proxy) -> None:
    files = files_of(primary, 150)
    proxy.once("POST", "/files", Fate.PASS, Fate.FAIL, Fate.FAIL, Fate.FAIL)
    with pytest.raises(ServiceUnavailable):
        dbs.register_files(block, dataset_of(block), files)
    later = Dbs(proxy.url + READER, proxy.url + WRITER)  # when the circuit has closed again
    assert len(later.block_files(block)) == 100
    result = later.register_files(block, dataset_of(block), files)
    assert (result.registered, result.already_there) == (50, 100)


def test_a_file_that_is_there_with_other_contents_is_refused(dbs: Dbs, primary: str, block: str) -> None:
    (file,) = files_of(primary, 1)
    dbs.register_files(block, dataset_of(block), [file])
    with pytest.raises(ServiceRejected, match="with 1000 bytes, adler32 00000000, 30 events, not 999 bytes"):
        dbs.register_files(block, dataset_of(block), [replace(file, size_bytes=999)])


def test_a_file_that_dbs_has_in_another_block_is_not_taken_for_registered(dbs: Dbs, primary: str, block: str) -> None:
    other = f"{dataset_of(block)}#{uuid.uuid4()}"
    dbs.open_block(other, SITE)
    dbs.register_files(block, dataset_of(block), files_of(primary, 1))
    with pytest.raises(ServiceRejected, match="did not get into") as caught:
        dbs.register_files(other, dataset_of(block), files_of(primary, 1))
    assert block in caught.value.detail


def test_an_invalid_dataset_exists_but_takes_no_outputs(dbs: Dbs, primary: str) -> None:
    spec = spec_named(primary)
    dbs.ensure_dataset(spec)
    dbs.set_dataset_access_type(spec.dataset, "INVALID")
    assert dbs.dataset_exists(spec.dataset)
    with pytest.raises(ServiceRejected, match="exists as INVALID"):
        dbs.ensure_dataset(spec)


def test_a_dataset_made_in_another_way_takes_no_outputs(dbs: Dbs, primary: str) -> None:
    spec = spec_named(primary)
    dbs.ensure_dataset(spec)
    with pytest.raises(ServiceRejected, match="exists without output configuration"):
        dbs.ensure_dataset(replace(spec, output_configs=(replace(CONFIG, release_version="CMSSW_15_0_0"),)))


def test_invalidated_files_are_left_out_of_inputs_but_not_of_the_block(dbs: Dbs, primary: str, block: str) -> None:
    dbs.register_files(block, dataset_of(block), files_of(primary, 3))
    assert dbs.invalidate_files([lfn(primary, 1)]) == 1
    assert [f.lfn for f in dbs.files(block)] == [lfn(primary, 0), lfn(primary, 2)]
    assert [f.is_valid for f in dbs.files(block, valid_only=False)] == [True, False, True]
    assert len(dbs.block_files(block)) == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dataset": "/a b/Run3Winter-Test-v1/GEN-SIM"}, "dataset"),
        ({"dataset": "/Other/Run3Winter-Test-v1/GEN-SIM"}, "is not made of its parts"),
        ({"processed_ds_name": "no version"}, "processed_ds_name"),
        ({"primary_ds_type": "simulation"}, "primary_ds_type"),
        ({"output_configs": ()}, "no output configuration"),
    ],
)
def test_a_dataset_name_dbs_would_not_take_is_not_sent(
    dbs: Dbs, primary: str, proxy: Proxy, change: dict[str, object], problem: str
) -> None:
    with pytest.raises(ServiceRejected, match=problem) as caught:
        dbs.ensure_dataset(replace(spec_named(primary), **change))
    assert caught.value.code == 113
    assert proxy.calls == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lfn": "/store/mc/../../etc/passwd"}, "logical_file_name"),
        ({"lfn": "/store/mc/E/P/TIER/X-v1/0/two\n.root"}, "logical_file_name"),
        ({"adler32": "DEADBEEF"}, "adler32"),
        ({"size_bytes": 0}, "size 0 bytes"),
        ({"lumis": {}}, "no lumis"),
        ({"lumis": {1: [(1, 10), (2, None)]}}, "some lumis only"),
        ({"lumis": {1: [(1, 10), (1, 20)]}}, "a lumi twice"),
    ],
)
def test_a_file_dbs_would_not_take_or_store_wrongly_is_not_sent(
    dbs: Dbs, primary: str, block: str, proxy: Proxy, change: dict[str, object], problem: str
) -> None:
    (file,) = files_of(primary, 1)
    with pytest.raises(ServiceRejected, match=problem):
        dbs.register_files(block, dataset_of(block), [replace(file, **change)])
    assert proxy.sent("POST", "/files") == 0


def test_a_file_of_another_dataset_does_not_go_into_a_block(dbs: Dbs, block: str) -> None:
    with pytest.raises(ServiceRejected, match="is not a block of"):
        dbs.register_files(block, "/Other/Run3Winter-Test-v1/GEN-SIM", [])


def test_a_large_dataset_is_streamed_and_never_held(simulators: Simulators, primary: str) -> None:
    name = f"/{primary}/Run3Winter-Big-v1/GEN-SIM"
    generate = {"files": 5_000, "files_per_block": 5_000, "sites": [SITE]}
    simulators.call("POST", "/admin/seed", {"dbs": {"datasets": [{"dataset": name, "generate": generate}]}})
    dbs = Dbs(simulators.url + READER, simulators.url + WRITER)
    tracemalloc.start()
    try:
        events = sum(file.events for file in dbs.files(name))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert events == 5_000 * 1000
    assert peak_bytes < 1_000_000


def test_a_server_that_does_not_stream_is_read_too(httpserver: HTTPServer) -> None:
    rows = [{"block_name": "/P/E-v1/T#1", "open_for_writing": 0, "file_count": None}]
    httpserver.expect_request("/blocks").respond_with_json(rows)
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    (info,) = dbs.blocks("/P/E-v1/TIER")
    assert (info.is_open, info.file_count) == (False, 0)


def test_all_lumis_of_a_run_in_one_row_are_taken_apart(httpserver: HTTPServer) -> None:
    rows = [{"logical_file_name": "/store/a", "run_num": 7, "lumi_section_num": [1, 3], "event_count": [5, None]}]
    httpserver.expect_request("/filelumis").respond_with_json(rows)
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    assert [(r.run, r.lumi, r.events) for r in dbs.file_lumis("/P/E-v1/TIER#1")] == [(7, 1, 5), (7, 3, None)]


def test_a_row_of_another_shape_says_nothing(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/files").respond_with_data('{"logical_file_name": 7}\n')
    dbs = Dbs(httpserver.url_for(""), httpserver.url_for(""))
    with pytest.raises(ServiceUnavailable, match="unexpected shape at logical_file_name"):
        list(dbs.files("/P/E-v1/TIER"))


@pytest.mark.parametrize(
    ("status", "code", "reason", "kind"),
    [
        (400, 310, "", None),
        (400, 101, "database is gone", ServiceUnavailable),
        (400, 310, "DBSError\n   Code: 102\n   Description: transaction", ServiceUnavailable),
        (400, 400, "DBSError\n   Code: 103\n   Reason: sql: no rows in result set", None),
        (400, 103, "ORA-12541", ServiceUnavailable),
        (500, 115, "unexpected end of JSON", ServiceRejected),
    ],
)
def test_dbs_own_trouble_is_told_from_a_refusal_by_its_codes(status: int, code: int, reason: str, kind: type | None) -> None:
    body = f'[{{"error": {{"reason": {reason!r}, "message": "m", "function": "f", "code": {code}, "stacktrace": "s"}}}}]'
    fault = dbs_fault(status, {}, body.replace("'", '"').encode())
    assert (fault.code, fault.kind) == (code, kind)
    assert fault.detail.startswith("f: m")
