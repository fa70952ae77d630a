"""What the verification reads of DBS and Rucio, from the simulated DBS over HTTP and from the real Rucio server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.demo.catalogues import Dbs, Rucio
from deploy.demo.facts import DbsBlock, RucioBlock, RucioFile
from deploy.demo.storage import path_of
from tests.support import rucio as support
from tests.support import simulator_world as world


@pytest.fixture
def dbs(tmp_path: Path) -> Iterator[tuple[Dbs, world.World]]:
    """A DBS with one block of three files."""
    with world.running(tmp_path / "state") as found:
        answer = found.dbs("POST", "bulkblocks", world.bulkblock())
        assert answer.status_code == 200, answer.text
        yield Dbs(f"{found.url}/dbs/prod/global/DBSReader"), found


def test_blocks_and_files_of_a_dataset_come_with_lumis_and_sums(dbs):
    reader, _ = dbs
    (block,) = reader.blocks(world.DATASET)
    assert isinstance(block, DbsBlock)
    assert (block.name, block.file_count) == (world.BLOCK, 3)
    files = reader.files(world.DATASET, [block])
    assert [(f.block, f.size_bytes, f.adler32, f.events, f.is_valid) for f in files] == [
        (world.BLOCK, 1000 + n, "0cc737eb", 10, True) for n in (1, 2, 3)
    ]
    assert [f.lumis for f in files] == [{(380001, n): 10} for n in (1, 2, 3)]


def test_an_invalid_file_is_listed_and_marked(dbs):
    reader, running = dbs
    lfn = world.file_record(2)["logical_file_name"]
    assert running.dbs("PUT", "files", {"logical_file_name": lfn, "is_file_valid": 0}).status_code == 200
    assert [f.lfn for f in reader.files(world.DATASET, ()) if not f.is_valid] == [lfn]


def test_a_dataset_is_there_while_it_is_valid(dbs):
    reader, running = dbs
    assert not reader.has_dataset("/No/Such-v1/AOD")
    for access, seen in {"PRODUCTION": False, "VALID": True, "INVALID": False}.items():
        body = {"dataset": world.DATASET, "dataset_access_type": access}
        assert running.dbs("PUT", "datasets", body).status_code == 200
        assert reader.has_dataset(world.DATASET) is seen


@pytest.mark.rucio
def test_blocks_files_replicas_and_rules_are_read_from_rucio(tmp_path: Path):
    client = support.plain_client(support.rucio_home())
    names, scope = support.Names(), support.SCOPE
    block, files = names.block(), names.files(2)
    client.add_container(scope, names.dataset)
    client.add_dataset(scope, block)
    client.attach_dids(scope, names.dataset, [support.did(block)])
    client.add_replicas("T2_CH_CERN", support.entries(files[:1]))
    client.add_replicas("T2_US_Purdue", support.entries(files[1:]))
    client.attach_dids(scope, block, support.entries(files))
    (rule,) = client.add_replication_rule([support.did(files[0].lfn)], 1, "T2_CH_CERN", grouping="NONE")
    rucio = Rucio(client, scope)

    (found,) = rucio.blocks(names.dataset)
    assert found == RucioBlock(block, is_open=True)
    client.close(scope, block)
    assert rucio.blocks(names.dataset) == (RucioBlock(block, is_open=False),)

    listed = {file.lfn: file for file in rucio.files([found])}
    assert {lfn: set(file.pfns) for lfn, file in listed.items()} == {files[0].lfn: {"T2_CH_CERN"}, files[1].lfn: {"T2_US_Purdue"}}
    first = listed[files[0].lfn]
    assert (first.block, first.size_bytes, first.adler32) == (block, files[0].size_bytes, files[0].adler32)
    assert isinstance(first, RucioFile)
    root = rucio.roots(tmp_path)["T2_CH_CERN"]
    pfns = rucio.pfns([files[0].lfn, "/store/none.root"])
    assert {lfn: path_of(pfn) for lfn, pfn in pfns.items()} == {files[0].lfn: root / files[0].lfn.lstrip("/")}
    assert [(r.rule_id, r.rse_expression, r.state) for r in rucio.rules() if r.name == files[0].lfn] == [
        (rule, "T2_CH_CERN", "OK")
    ]


@pytest.mark.rucio
def test_a_container_that_does_not_exist_has_no_blocks_and_tapes_are_told_from_disks(tmp_path: Path):
    rucio = Rucio(support.plain_client(support.rucio_home()), support.SCOPE)
    assert rucio.blocks("/No/Such-v1/AOD") == ()
    assert rucio.tape_rses == {*support.TAPES, support.APPROVED_TAPE}
    assert rucio.disk_rses >= set(support.DISKS)
    roots = rucio.roots(tmp_path)
    assert set(roots) >= set(support.DISKS)
    assert roots["T2_DE_DESY"] == tmp_path / "T2_DE_DESY"
