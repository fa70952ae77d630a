"""Calls to DBS: registration of blocks, lost answers, guards, and what its error answers mean.

Runs on the simulator, in both modes of its ``bulkblocks``, or on any DBS: ``WMS2_TEST_DBS_READER_URL`` and
``WMS2_TEST_DBS_WRITER_URL`` (http). What needs the simulator's own doors is skipped there.
"""

from __future__ import annotations

import os
import re
import tracemalloc
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer

from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.faults import fault
from tests.support.simulators import READER, WRITER, Simulators
from wms2.adapters.dbs import Dbs
from wms2.adapters.dbs_payloads import block_payload
from wms2.adapters.types import BlockSpec, DatasetInfo, DatasetSpec, DbsFile, OutputConfig
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

CONFIG = OutputConfig("cmsRun", "CMSSW_14_0_0", "76e303993a1c2f842159dbfeeed9a0dd", "RAWSIMoutput", "140X_mcRun3_v1")
#: The same output module in another release: what DBS's single calls mix up.
NEWER = replace(CONFIG, release_version="CMSSW_15_0_0", pset_hash="0" * 32, global_tag="150X_mcRun3_v1")
SITE = "T2_CH_CERN"


@dataclass(frozen=True)
class Server:
    """A DBS: where its reader and writer are, and whether it is the simulator."""

    reader: str
    writer: str
    simulators: Simulators | None


@pytest.fixture(scope="session", params=["concurrent", "sequential"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    reader, writer = (os.environ.get(f"WMS2_TEST_DBS_{role}_URL", "") for role in ("READER", "WRITER"))
    if reader and writer:
        if request.param == "sequential":
            pytest.skip("the DBS at WMS2_TEST_DBS_WRITER_URL has one mode of bulkblocks, its own")
        yield Server(reader, writer, None)
        return
    running = Simulators(tmp_path_factory.mktemp("dbs"), "--dbs-bulkblocks", request.param)
    yield Server(running.url + READER, running.url + WRITER, running)
    running.stop()


@pytest.fixture
def simulator(server: Server) -> Simulators:
    """The simulator behind the server, for its own doors."""
    if server.simulators is None:
        pytest.skip("needs the simulator's own doors, which the DBS at WMS2_TEST_DBS_WRITER_URL does not have")
    return server.simulators


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    """A way to the writer on which calls can be lost."""
    with FaultProxy(server.writer) as between:
        yield between


def client(server: Server, proxy: FaultProxy, *, timeout_seconds: float = 5.0) -> Dbs:
    writer = proxy.url + urlsplit(server.writer).path
    return Dbs(server.reader, writer, timeout_seconds=timeout_seconds)


@pytest.fixture
def dbs(server: Server, proxy: FaultProxy) -> Dbs:
    return client(server, proxy)


@pytest.fixture
def primary() -> str:
    """A primary dataset of this test's own."""
    return f"P{uuid.uuid4().hex[:12]}"


def spec_named(primary: str, tier: str = "GEN-SIM", config: OutputConfig = CONFIG) -> DatasetSpec:
    return DatasetSpec(
        dataset=f"/{primary}/Run3Winter-Test-v1/{tier}",
        primary_ds_type="mc",
        acquisition_era="Run3Winter",
        processing_version=1,
        physics_group="DataOps",
        output_configs=(config,),
        prep_id="TOP-1",
    )


def lfn(primary: str, number: int, tier: str = "GEN-SIM") -> str:
    return f"/store/mc/Run3Winter/{primary}/{tier}/Test-v1/00000/file_{number}.root"


def block_of(primary: str, *numbers: int, tier: str = "GEN-SIM", config: OutputConfig = CONFIG, **changes: Any) -> BlockSpec:
    """A new block with files of these numbers."""
    spec = spec_named(primary, tier, config)
    files = tuple(
        DbsFile(
            lfn=lfn(primary, number, tier),
            size_bytes=1000 + number,
            adler32=f"{number:08x}",
            events=30,
            lumis={1: [(10 * number + 1, 10), (10 * number + 2, 20)]},
            output_config=config,
        )
        for number in numbers
    )
    return BlockSpec(f"{spec.dataset}#{uuid.uuid4()}", SITE, spec, files)._replace(**changes)


def one_changed(block: BlockSpec, **changes: Any) -> BlockSpec:
    """The block with its first file changed."""
    return block._replace(files=(block.files[0]._replace(**changes), *block.files[1:]))


def test_a_block_is_registered_whole_and_closed_with_everything_it_hangs_on(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0, 1, 2)
    assert dbs.dataset(block.dataset.dataset) is None
    assert dbs.block(block.block_name) is None
    dbs.register_block(block)
    info = dbs.block(block.block_name)
    assert info is not None
    assert (info.is_open, info.file_count, info.size_bytes, info.origin_site) == (False, 3, 3003, SITE)
    dataset = dbs.dataset(block.dataset.dataset)
    assert dataset is not None and (dataset.access_type, dataset.primary_ds_type) == ("PRODUCTION", "mc")
    stored = dbs.block_files(block.block_name)[1]
    assert (stored.size_bytes, stored.adler32, stored.events, stored.is_valid) == (1001, "00000001", 30, True)
    lumis = {(row.lfn, row.run, row.lumi, row.events) for row in dbs.file_lumis(block.block_name)}
    assert len(lumis) == 6 and (lfn(primary, 2), 1, 21, 10) in lumis
    assert [b.block_name for b in dbs.blocks(block.dataset.dataset)] == [block.block_name]


def test_two_requests_that_share_an_output_module_keep_their_own_configurations(dbs: Dbs, primary: str) -> None:
    first, second = block_of(primary, 0), block_of(primary, 1, config=NEWER)
    dbs.register_block(first)
    dbs.register_block(second)
    # each is read back and compared: a third look finds the same
    dbs.register_block(first)
    dbs.register_block(second)
    with pytest.raises(ServiceRejected, match="configuration is cmsRun/CMSSW_15_0_0"):
        dbs.register_block(second._replace(dataset=first.dataset, files=(second.files[0]._replace(output_config=CONFIG),)))


def test_files_are_shown_with_the_release_that_had_their_configuration_first(dbs: Dbs, primary: str) -> None:
    """DBS does not look at it: a block of a newer patch release lies there whole, and only its files' release is another's."""
    hashed = replace(CONFIG, pset_hash=uuid.uuid4().hex)
    patched = replace(hashed, release_version="CMSSW_14_0_22")
    dbs.register_block(block_of(primary, 0, config=hashed))
    newer = block_of(f"{primary}New", 1, 2, config=patched)
    (reported,) = dbs.register_block(newer)
    assert newer.dataset.dataset in reported and "CMSSW_14_0_0" in reported and "CMSSW_14_0_22" in reported
    assert dbs.register_block(newer) == (reported,)
    known = dbs.block(newer.block_name)
    assert known is not None and (known.is_open, known.file_count) == (False, 2)
    assert dbs.configs_of_dataset(newer.dataset.dataset) == [patched]
    assert dbs.outputs.configs_of_file(newer.files[0].lfn) == [hashed]


def test_a_configuration_that_dbs_can_tell_apart_is_compared(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0)
    assert dbs.register_block(block) == ()
    for other in (replace(CONFIG, global_tag="141X_v1"), replace(CONFIG, pset_hash="e" * 32), replace(CONFIG, app_name="cmsGen")):
        changed = one_changed(block._replace(dataset=block.dataset._replace(output_configs=(other,))), output_config=other)
        with pytest.raises(ServiceRejected, match="configuration is cmsRun/CMSSW_14_0_0"):
            dbs.register_block(changed)


@pytest.mark.parametrize(
    ("lumis", "reported"),
    [
        ({1: [(1, 10)]}, "with 1:2 too"),
        ({1: [(1, 10), (2, 20), (3, 0)]}, "without 1:3"),
        ({2: [(1, 10), (2, 20)]}, "with 1:"),
        ({1: [(1, 20), (2, 10)]}, "events, not"),
    ],
)
def test_a_block_whose_lumis_are_stored_otherwise_is_refused(dbs: Dbs, primary: str, lumis: Any, reported: str) -> None:
    block = block_of(primary, 0, 1)
    dbs.register_block(block)
    with pytest.raises(ServiceRejected, match=r"not as it should be.*the lumis of 1 files differ") as caught:
        dbs.register_block(one_changed(block, lumis=lumis))
    assert reported in str(caught.value)


def test_a_lumi_without_events_reads_back_as_it_was_sent(dbs: Dbs, primary: str) -> None:
    block = one_changed(block_of(primary, 0), lumis={1: [(1, 0), (2, 30)]})
    dbs.register_block(block)
    dbs.register_block(block)
    dbs.register_block(one_changed(block_of(primary, 3), lumis={1: [(31, None), (32, None)]}))


def test_a_block_with_a_file_that_became_invalid_is_not_as_it_should_be_unless_it_was_taken_back(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0, 1)
    dbs.register_block(block)
    dbs.invalidate_files([block.files[0].lfn])
    with pytest.raises(ServiceRejected, match="1 files are INVALID there"):
        dbs.register_block(block)
    dbs.register_block(one_changed(block, is_valid=False))


def test_a_repeated_registration_sends_nothing(dbs: Dbs, primary: str, proxy: FaultProxy) -> None:
    block = block_of(primary, 0, 1)
    for _ in range(2):
        dbs.register_block(block)
    assert proxy.sent("POST", "/bulkblocks") == 1
    assert [method for method, _, _ in proxy.log if method not in ("GET", "POST")] == []


def test_nothing_but_bulkblocks_creates_anything(dbs: Dbs, primary: str, proxy: FaultProxy) -> None:
    dbs.register_block(block_of(primary, 0))
    assert {path.rpartition("/")[2] for method, path, _ in proxy.log if method != "GET"} == {"bulkblocks"}


def test_files_keep_their_parents_whose_blocks_come_first(dbs: Dbs, primary: str) -> None:
    parents = block_of(primary, 0, 1, tier="RAW")
    children = block_of(primary, 0, tier="AOD")
    children = one_changed(children, parents=tuple(file.lfn for file in parents.files))
    with pytest.raises(ServiceRejected) as caught:
        dbs.register_block(children)
    assert caught.value.code == 202
    assert dbs.block(children.block_name) is None
    dbs.register_block(parents)
    dbs.register_block(children)
    links = {(row.lfn, row.parent_lfn) for row in dbs.file_parents(children.block_name)}
    assert links == {(children.files[0].lfn, file.lfn) for file in parents.files}


def test_a_dataset_may_name_parents_instead(dbs: Dbs, primary: str) -> None:
    parents = block_of(primary, 0, tier="RAW")
    children = block_of(primary, 0, tier="AOD", dataset_parents=(parents.dataset.dataset,))
    with pytest.raises(ServiceRejected):
        dbs.register_block(children)
    dbs.register_block(parents)
    dbs.register_block(children)
    assert list(dbs.file_parents(children.block_name)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"size_bytes": 999}, "1 files differ, first .* with 1000 bytes, adler32 00000000, 30 events, not 999 bytes"),
        ({"events": 29}, "not 1000 bytes, adler32 00000000, 29 events"),
        ({"adler32": "ffffffff"}, "not 1000 bytes, adler32 ffffffff"),
        ({"output_config": NEWER}, "configuration is cmsRun/CMSSW_14_0_0"),
    ],
)
def test_a_block_that_is_there_with_other_contents_is_refused_with_what_differs(
    dbs: Dbs, primary: str, proxy: FaultProxy, change: dict[str, Any], problem: str
) -> None:
    block = block_of(primary, 0)
    dbs.register_block(block)
    other = one_changed(block, **change)
    if "output_config" in change:
        other = other._replace(dataset=other.dataset._replace(output_configs=(NEWER,)))
    with pytest.raises(ServiceRejected, match=problem):
        dbs.register_block(other)
    assert proxy.sent("POST", "/bulkblocks") == 1


@pytest.mark.parametrize(("numbers", "problem"), [((0, 1, 2), "it lacks 1 files, first"), ((0,), "it also holds 1 files, first")])
def test_nothing_is_added_to_a_registered_block_although_dbs_would_take_it(
    dbs: Dbs, primary: str, proxy: FaultProxy, numbers: tuple[int, ...], problem: str
) -> None:
    block = block_of(primary, 0, 1)
    dbs.register_block(block)
    with pytest.raises(ServiceRejected, match=problem):
        dbs.register_block(block._replace(files=block_of(primary, *numbers).files))
    assert proxy.sent("POST", "/bulkblocks") == 1
    assert len(dbs.block_files(block.block_name)) == 2


def test_wrong_counts_of_a_block_are_seen(server: Server, simulator: Simulators, dbs: Dbs, primary: str) -> None:
    """DBS stores the counts as they are sent, and leaves them when files are added in its sequential mode."""
    block = block_of(primary, 0, 1)
    body: Any = block_payload(block, "test")
    body["block"] |= {"file_count": 7, "block_size": 5}
    simulator.call("POST", f"{WRITER}/bulkblocks", body)
    with pytest.raises(ServiceRejected, match="it counts 7 files and 5 bytes, not 2 and 2001"):
        dbs.register_block(block)


@pytest.mark.parametrize("size_bytes", [None, 999], ids=["the rest comes", "what is there is wrong"])
def test_a_block_of_which_a_part_is_there_is_asked_for_again_later_unless_the_part_is_wrong(
    simulator: Simulators, dbs: Dbs, primary: str, size_bytes: int | None
) -> None:
    """A call that timed out is still carried out: the block and its counts are stored first."""
    block = block_of(primary, 0, 1, 2)
    body: Any = block_payload(block, "test")
    body["files"], body["file_conf_list"] = body["files"][:1], body["file_conf_list"][:1]
    body["files"][0] |= {"file_size": size_bytes} if size_bytes else {}
    simulator.call("POST", f"{WRITER}/bulkblocks", body)
    with pytest.raises(ServiceRejected if size_bytes else ServiceUnavailable, match="it lacks 2 files, first"):
        dbs.register_block(block)


def test_what_dbs_refused_is_said_also_where_a_part_is_there(dbs: Dbs, primary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([None, ServiceUnavailable("dbs", "register_block", "is there in part")])

    def registered(block: BlockSpec, operation: str) -> None:
        if (answer := next(seen)) is not None:
            raise answer

    def refuse(*_: Any, **__: Any) -> None:
        raise ServiceRejected("dbs", "register_block", "no such era")

    monkeypatch.setattr(dbs, "_registered", registered)
    monkeypatch.setattr(dbs._bulk, "send_json", refuse)
    with pytest.raises(ServiceUnavailable, match="in part; DBS refused it: no such era"):
        dbs.register_block(block_of(primary, 0, 1))


def test_a_file_that_lies_in_another_block_is_refused_with_its_place(dbs: Dbs, primary: str) -> None:
    """One mode of DBS stores the other files and says 200, the other says only that there was a concurrency error."""
    first = block_of(primary, 0)
    dbs.register_block(first)
    second = block_of(primary, 0, 1)
    with pytest.raises(ServiceRejected, match=f"file_0.root of .* is in {re.escape(first.block_name)}"):
        dbs.register_block(second)


def test_a_block_that_was_begun_open_is_closed_when_it_holds_the_same(
    simulator: Simulators, dbs: Dbs, primary: str, proxy: FaultProxy
) -> None:
    block = block_of(primary, 0, 1)
    body: Any = block_payload(block, "test")
    body["block"]["open_for_writing"] = 1
    simulator.call("POST", f"{WRITER}/bulkblocks", body)
    dbs.register_block(block)
    info = dbs.block(block.block_name)
    assert info is not None and not info.is_open
    assert proxy.sent("POST", "/bulkblocks") == 0


@pytest.mark.parametrize("fault", [Fault.DROP_AFTER_ACTING, Fault.HANG_AFTER_ACTING])
def test_a_lost_answer_is_settled_by_reading_back_and_nothing_is_sent_twice(
    server: Server, proxy: FaultProxy, primary: str, fault: Fault
) -> None:
    dbs = client(server, proxy, timeout_seconds=0.5)
    block = block_of(primary, 0, 1, 2)
    proxy.arm(fault, method="POST", path="/bulkblocks$", times=1)
    dbs.register_block(block)
    assert proxy.sent("POST", "/bulkblocks") == 1
    assert len(dbs.block_files(block.block_name)) == 3


def test_what_was_not_done_is_sent_again(dbs: Dbs, primary: str, proxy: FaultProxy) -> None:
    block = block_of(primary, 0, 1)
    proxy.arm(Fault.ERROR_500, method="POST", path="/bulkblocks$", times=2)
    dbs.register_block(block)
    assert proxy.sent("POST", "/bulkblocks") == 3
    assert len(dbs.block_files(block.block_name)) == 2


@fault(
    "DBS locked",
    done="DBS's database refuses every write, HTTP 400 with the code of a refusal",
    spec="docs/design/services.md, Errors",
    afterwards="later, never refused: the block is registered once when the database takes writes again",
)
def test_a_locked_database_is_later_and_the_block_goes_in_afterwards(
    server: Server, simulator: Simulators, dbs: Dbs, primary: str
) -> None:
    first, second = block_of(primary, 0), block_of(primary, 1)
    dbs.register_block(first)
    simulator.call("POST", "/admin/dbs-lock", {"locked": True})
    try:
        with pytest.raises(ServiceUnavailable, match="database is locked"):
            dbs.register_block(second)
        with pytest.raises(ServiceUnavailable, match="database is locked"):
            dbs.set_dataset_access_type(first.dataset.dataset, "VALID")
    finally:
        simulator.call("POST", "/admin/dbs-lock", {"locked": False})
    later = Dbs(server.reader, server.writer)  # another way there: this one's circuit is open for a while
    later.register_block(second)
    assert len(later.block_files(second.block_name)) == 1
    assert later.dataset(first.dataset.dataset) == DatasetInfo(first.dataset.dataset, "PRODUCTION", "mc")


def test_an_invalid_dataset_exists_but_takes_no_outputs(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0)
    dbs.register_block(block)
    dbs.set_dataset_access_type(block.dataset.dataset, "INVALID")
    assert dbs.dataset(block.dataset.dataset) is not None
    with pytest.raises(ServiceRejected, match="exists as INVALID"):
        dbs.register_block(block_of(primary, 1))


def test_what_dbs_answers_with_200_although_it_is_not_there_is_not_found(dbs: Dbs, primary: str) -> None:
    with pytest.raises(NotFoundInService):
        dbs.set_dataset_access_type(spec_named(primary).dataset, "INVALID")


def test_invalidated_files_are_left_out_of_inputs_but_not_of_the_block(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0, 1, 2)
    dbs.register_block(block)
    assert dbs.invalidate_files([lfn(primary, 1)]) == 1
    assert [f.lfn for f in dbs.files(block.block_name)] == [lfn(primary, 0), lfn(primary, 2)]
    assert [f.is_valid for f in dbs.files(block.block_name, valid_only=False)] == [True, False, True]
    assert len(dbs.block_files(block.block_name)) == 3
    taken_back = tuple(file._replace(is_valid=file.lfn != lfn(primary, 1)) for file in block.files)
    dbs.register_block(block._replace(files=taken_back))  # it is still the same block


def test_a_valid_file_of_a_dataset_is_found_whoever_registered_it(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0, 1, 2)
    dataset = block.dataset.dataset
    assert dbs.valid_file(dataset) == ""
    dbs.register_block(block)
    assert dbs.valid_file(dataset) == lfn(primary, 0)
    dbs.invalidate_files([lfn(primary, 0), lfn(primary, 1)])
    assert dbs.valid_file(dataset) == lfn(primary, 2)
    dbs.invalidate_files([lfn(primary, 2)])
    assert dbs.valid_file(dataset) == ""


def test_an_access_type_that_somebody_else_has_chosen_stays(dbs: Dbs, primary: str) -> None:
    block = block_of(primary, 0)
    dataset = block.dataset.dataset
    assert dbs.turn_dataset(dataset, "PRODUCTION", "VALID") == "", "DBS does not know it"
    dbs.register_block(block)
    assert dbs.turn_dataset(dataset, "INVALID", "PRODUCTION") == "PRODUCTION"
    assert dbs.turn_dataset(dataset, "PRODUCTION", "VALID") == "VALID"
    dbs.set_dataset_access_type(dataset, "INVALID")
    assert dbs.turn_dataset(dataset, "PRODUCTION", "VALID") == "INVALID"
    assert dbs.turn_dataset(dataset, "INVALID", "PRODUCTION") == "PRODUCTION"
    dbs.register_block(block_of(primary, 1))


NO_FILE_NAME = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text()), st.just([lfn("P", 1)]), st.just((lfn("P", 1),)),
    st.dictionaries(st.text(), st.text()), st.just(lfn("P", 1) + "\n"), st.just(lfn("P*", 1)), st.just("/store/mc/*"),
)  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=NO_FILE_NAME)
def test_a_list_of_files_or_none_is_never_sent_to_be_invalidated(dbs: Dbs, proxy: FaultProxy, name: Any) -> None:
    """DBS takes it for every file there is, and answers 200."""
    with pytest.raises(ServiceRejected) as caught:
        dbs.invalidate_files([name])
    assert caught.value.code == 113
    assert proxy.sent("PUT", "/files") == 0


def test_what_is_sent_to_invalidate_names_one_file_and_nothing_else(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/files", method="PUT").respond_with_json([])
    Dbs(httpserver.url_for(""), httpserver.url_for("")).invalidate_files([lfn("P", 1), lfn("P", 2)])
    bodies = [request.get_json() for request, _ in httpserver.log]
    assert bodies == [{"logical_file_name": lfn("P", n), "is_file_valid": 0} for n in (1, 2)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dataset": "/a b/Run3Winter-Test-v1/GEN-SIM"}, "dataset"),
        ({"dataset": "/P/no-version/GEN-SIM"}, "processed_ds_name"),
        ({"primary_ds_type": "simulation"}, "primary_ds_type"),
        ({"output_configs": ()}, "no output configuration"),
        ({"output_configs": (NEWER,)}, "configuration that its dataset does not name"),
    ],
)
def test_a_dataset_dbs_would_store_wrongly_is_not_sent(
    dbs: Dbs, primary: str, proxy: FaultProxy, change: dict[str, Any], problem: str
) -> None:
    block = block_of(primary, 0)
    with pytest.raises(ServiceRejected, match=problem) as caught:
        dbs.register_block(block._replace(dataset=block.dataset._replace(**change)))
    assert caught.value.code == 113
    assert proxy.log == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lfn": "/store/mc/../../etc/passwd"}, "logical_file_name"),
        ({"lfn": "/store/mc/E/P/TIER/X-v1/0/two\n.root"}, "logical_file_name"),
        ({"adler32": "DEADBEEF"}, "adler32"),
        ({"adler32": ""}, "adler32"),
        ({"size_bytes": 0}, "size 0 bytes"),
        ({"lumis": {}}, "no lumis"),
        ({"lumis": {1: [(1, 10), (2, None)]}}, "some lumis only"),
        ({"lumis": {1: [(1, None)]}}, "some lumis only"),
        ({"lumis": {1: [(1, 10), (1, 20)]}}, "a lumi twice"),
    ],
)
def test_a_file_dbs_would_not_take_or_store_wrongly_is_not_sent(
    dbs: Dbs, primary: str, proxy: FaultProxy, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ServiceRejected, match=problem):
        dbs.register_block(one_changed(block_of(primary, 0, 1), **change))
    assert proxy.log == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"block_name": "/Other/Run3Winter-Test-v1/GEN-SIM#1"}, "is not a block of"),
        ({"block_name": "/Other/Run3Winter-Test-v1/GEN-SIM#a b"}, "block_name"),
        ({"origin_site": ""}, "no origin site"),
        ({"files": ()}, "has no file"),
        ({"files": block_of("Pa", 1).files * 2}, "holds a file twice"),
        (
            {"dataset_parents": ("/A/B-v1/RAW",), "files": (block_of("Pa", 1).files[0]._replace(parents=(lfn("P", 1),)),)},
            "or the",
        ),
    ],
)
def test_a_block_dbs_would_store_wrongly_is_not_sent(
    dbs: Dbs, primary: str, proxy: FaultProxy, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ServiceRejected, match=problem):
        dbs.register_block(block_of(primary, 0)._replace(**change))
    assert proxy.log == []


def test_the_body_names_what_dbs_is_to_keep_and_its_counts_are_the_files_sums(primary: str) -> None:
    body: Any = block_payload(block_of(primary, 1, 2), "WMS2")
    assert (body["block"]["file_count"], body["block"]["block_size"], body["block"]["open_for_writing"]) == (2, 2003, 0)
    assert (body["dataset"]["prep_id"], body["dataset"]["dataset_access_type"]) == ("TOP-1", "PRODUCTION")
    assert [config["lfn"] for config in body["file_conf_list"]] == [lfn(primary, 1), lfn(primary, 2)]
    assert {config["release_version"] for config in body["file_conf_list"]} == {"CMSSW_14_0_0"}


def test_a_large_dataset_is_streamed_and_never_held(server: Server, simulator: Simulators, primary: str) -> None:
    name = f"/{primary}/Run3Winter-Big-v1/GEN-SIM"
    generate = {"files": 5_000, "files_per_block": 5_000, "sites": [SITE]}
    simulator.call("POST", "/admin/seed", {"dbs": {"datasets": [{"dataset": name, "generate": generate}]}})
    dbs = Dbs(server.reader, server.writer)
    tracemalloc.start()
    try:
        events = sum(file.events for file in dbs.files(name))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert events == 5_000 * 1000
    assert peak_bytes < 1_000_000
