"""What the adapter rests on, asked of a DBS: the stack's simulator, or the server at DBS_URL (``…/DBSWriter``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from tests.support.contract import Area, as_us, credentials, given, server
from wms2.adapters.dbs import Dbs
from wms2.adapters.dbs_payloads import block_payload
from wms2.errors import NotFoundInService, ServiceRejected

pytestmark = pytest.mark.simulators
INVALID = "INVALID"


@pytest.fixture(scope="module", name="writer")
def _writer() -> str:
    return server("DBS_URL", "WMS2_DBS_WRITER_URL")


@pytest.fixture(scope="module", name="dbs")
def _dbs(writer: str) -> Dbs:
    reader = given("DBS_READER_URL", writer.replace("DBSWriter", "DBSReader"))
    return Dbs(reader, writer, timeout_seconds=60.0, credentials=credentials())


@pytest.fixture(name="area")
def _area(dbs: Dbs) -> Iterator[Area]:
    """A dataset of this test alone; what was made of it is made invalid at the end, which is all that DBS can do."""
    area = Area()
    yield area
    if dbs.outputs.dataset(area.dataset) is not None:
        dbs.invalidate_files([file.lfn for file in dbs.outputs.files(area.dataset)])
        dbs.set_dataset_access_type(area.dataset, INVALID)


def call(writer: str, method: str, path: str, body: Any = None, content: str = "application/json", **params: Any) -> Any:
    """(status, DBS's own code, the answer), without the adapter."""
    data, headers = None if body is None else json.dumps(body), {"Accept": "application/json", "Content-Type": content}
    answer = requests.request(method, writer + path, params=params, data=data, headers=headers, **as_us())
    value = answer.json() if answer.text.strip() else []
    return answer.status_code, value[0]["error"]["code"] if answer.status_code >= 400 else 0, value


def stored(dbs: Dbs, name: str) -> list[tuple[str, int, str, int, bool]]:
    rows = dbs.outputs.files(name, valid_only=False)
    return sorted((row.lfn, row.size_bytes, row.adler32, row.events, row.is_valid) for row in rows)


def test_a_block_is_stored_whole_closed_and_as_it_was_sent(dbs: Dbs, area: Area) -> None:
    block = area.block()
    dbs.register_block(block)
    known = dbs.outputs.block(block.block_name)
    assert known is not None
    assert (known.is_open, known.file_count, known.size_bytes, known.origin_site) == (False, 2, 2001, "T2_CH_CERN")
    assert stored(dbs, area.dataset) == sorted((f.lfn, f.size_bytes, f.adler32, f.events, True) for f in block.files)
    assert dbs.outputs.configs_of_file(block.files[0].lfn) == [block.files[0].output_config]
    assert [row.block_name for row in dbs.outputs.blocks(area.dataset)] == [block.block_name]
    lumis = {(row.lfn, row.run, row.lumi, row.events) for row in dbs.outputs.file_lumis(block.block_name)}
    assert lumis == {(f.lfn, run, *pair) for f in block.files for run, pairs in f.lumis.items() for pair in pairs}


def test_a_block_sent_again_changes_nothing_in_either_mode_of_the_server(dbs: Dbs, writer: str, area: Area) -> None:
    block = area.block()
    dbs.register_block(block)
    before = stored(dbs, block.block_name)
    status, code, _ = call(writer, "POST", "/bulkblocks", block_payload(block, "WMS2"))
    assert (status, code) in ((200, 0), (400, 200))
    assert stored(dbs, block.block_name) == before
    dbs.register_block(block)


def test_other_contents_of_a_known_block_are_refused_by_the_adapter(dbs: Dbs, area: Area) -> None:
    block = area.block()
    dbs.register_block(block)
    changed = block._replace(files=(block.files[0]._replace(size_bytes=7), *block.files[1:]))
    with pytest.raises(ServiceRejected, match="not as it should be"):
        dbs.register_block(changed)


def test_a_file_of_another_block_is_refused(dbs: Dbs, area: Area) -> None:
    block = area.block()
    dbs.register_block(block)
    with pytest.raises(ServiceRejected, match="cannot change its block"):
        dbs.register_block(block._replace(block_name=area.block_name(), files=block.files[:1]))


def test_a_parent_that_dbs_does_not_know_is_refused(dbs: Dbs, writer: str, area: Area) -> None:
    block = area.block(files=1)
    orphan = block._replace(files=(block.files[0]._replace(parents=(area.lfn(),)),))
    status, _, _ = call(writer, "POST", "/bulkblocks", block_payload(orphan, "WMS2"))
    assert status == 400
    with pytest.raises(ServiceRejected):
        dbs.register_block(orphan)
    assert dbs.outputs.block(block.block_name) is None


def test_two_outputs_of_one_label_keep_their_configurations(dbs: Dbs, area: Area) -> None:
    first = area.block(files=1)
    dbs.register_block(first)
    newer = replace(first.files[0].output_config, release_version="CMSSW_15_0_0", global_tag="150X_contract_v1")
    file = area.file(5)._replace(output_config=newer)
    spec = first.dataset._replace(output_configs=(newer,))
    assert dbs.register_block(first._replace(block_name=area.block_name(), dataset=spec, files=(file,))) == ()
    assert dbs.outputs.configs_of_file(file.lfn) == [newer]
    assert dbs.outputs.configs_of_file(first.files[0].lfn) == [first.files[0].output_config]


def test_a_files_configuration_is_found_without_its_release_and_its_datasets_is_right(dbs: Dbs, area: Area) -> None:
    first = area.block(files=1)
    config = first.files[0].output_config
    dbs.register_block(first)
    patched = replace(config, release_version=f"{config.release_version}_patch1")
    file = area.file(5)._replace(output_config=patched)
    spec = first.dataset._replace(output_configs=(patched,))
    (reported,) = dbs.register_block(first._replace(block_name=area.block_name(), dataset=spec, files=(file,)))
    assert patched.release_version in reported
    assert dbs.outputs.configs_of_file(file.lfn) != [patched]
    assert patched in dbs.outputs.configs_of_dataset(area.dataset)


def test_datasets_are_made_production_and_default_queries_show_valid_ones_only(dbs: Dbs, writer: str, area: Area) -> None:
    dbs.register_block(area.block(files=1))

    def shown(**params: str) -> list[str]:
        return [row["dataset"] for row in call(writer, "GET", "/datasets", dataset=area.dataset, detail=1, **params)[2]]

    assert (shown(), shown(dataset_access_type="*")) == ([], [area.dataset])
    assert dbs.turn_dataset(area.dataset, "PRODUCTION", "VALID") == "VALID"
    assert shown() == [area.dataset]
    dbs.set_dataset_access_type(area.dataset, INVALID)
    assert shown() == []
    assert dbs.turn_dataset(area.dataset, "PRODUCTION", "VALID") == INVALID, "somebody's decision stays"
    with pytest.raises(ServiceRejected, match="revive it"):
        dbs.register_block(area.block(files=1))


def test_an_unknown_access_type_is_refused_and_an_unknown_dataset_is_not_told(dbs: Dbs, writer: str, area: Area) -> None:
    dbs.register_block(area.block(files=1))
    body = {"dataset": area.dataset, "dataset_access_type": "NOSUCHTYPE"}
    assert call(writer, "PUT", "/datasets", body)[:2] == (400, 408)
    unknown = Area().dataset
    assert call(writer, "PUT", "/datasets", {"dataset": unknown, "dataset_access_type": "VALID"})[0] == 200
    with pytest.raises(NotFoundInService):
        dbs.set_dataset_access_type(unknown, "VALID")


def test_closing_an_unknown_block_is_not_told(writer: str) -> None:
    assert call(writer, "PUT", "/blocks", block_name=Area().block_name(), open_for_writing=0)[0] == 200


def test_a_block_can_be_opened_and_is_closed_by_its_registration(dbs: Dbs, writer: str, area: Area) -> None:
    block = area.block(files=1)
    dbs.register_block(block)
    assert call(writer, "PUT", "/blocks", block_name=block.block_name, open_for_writing=1)[0] == 200
    known = dbs.outputs.block(block.block_name)
    assert known is not None and known.is_open
    dbs.register_block(block)
    known = dbs.outputs.block(block.block_name)
    assert known is not None and not known.is_open


def test_invalid_files_stay_in_their_block_and_leave_the_inputs(dbs: Dbs, area: Area) -> None:
    block = area.block()
    dbs.register_block(block)
    first, second = (file.lfn for file in block.files)
    for _ in range(2):
        assert dbs.invalidate_files([first]) == 1
    assert {row[0]: row[-1] for row in stored(dbs, block.block_name)} == {first: False, second: True}
    assert [row.lfn for row in dbs.outputs.files(block.block_name)] == [second]
    assert dbs.valid_file(area.dataset) == second


@pytest.mark.parametrize(("path", "code"), [("/blocks", 118), ("/files", 118)])
def test_a_query_that_names_nothing_is_refused(writer: str, path: str, code: int) -> None:
    assert call(writer, "GET", path)[:2] == (400, code)


def test_another_content_type_is_refused(writer: str) -> None:
    assert call(writer, "POST", "/bulkblocks", {}, content="application/json; charset=utf-8")[:2] == (415, 117)


def test_what_dbs_does_not_know_is_told_by_an_empty_answer(dbs: Dbs) -> None:
    area = Area()
    assert (dbs.outputs.dataset(area.dataset), dbs.outputs.block(area.block_name())) == (None, None)
    assert list(dbs.outputs.files(area.dataset)) == list(dbs.outputs.blocks(area.dataset)) == []
