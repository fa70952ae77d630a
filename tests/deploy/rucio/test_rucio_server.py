"""What WMS2 relies on in the real Rucio server, asked without WMS2's adapter.

A new Rucio version that fails here needs a changed adapter.
"""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from rucio.common import exception

from tests.support.rucio import (
    ACCOUNT,
    APPROVED_TAPE,
    BEHIND_A_SERVER,
    DISKS,
    SCOPE,
    TAPES,
    Names,
    did,
    entries,
    plain_client,
    rucio_home,
    settle,
)
from tests.support.xrootd import of_the_stack
from wms2.adapters.rucio_types import RucioFile

pytestmark = pytest.mark.rucio


@pytest.fixture(scope="module")
def client() -> Any:
    return plain_client(rucio_home())


@pytest.fixture
def names() -> Names:
    return Names()


def add_rules(client: Any, names: list[str], rse: str, grouping: str) -> list[str]:
    return list(
        client.add_replication_rule(
            [did(n) for n in names], 1, rse, grouping=grouping, account=ACCOUNT, activity="Production Output", comment="a test"
        )
    )


def block_with_files(client: Any, names: Names, rse: str, count: int) -> tuple[str, list[RucioFile]]:
    block, files = names.block(), names.files(count)
    client.add_dataset(SCOPE, block)
    client.add_replicas(rse, entries(files))
    client.attach_dids(SCOPE, block, entries(files))
    return block, files


def has_request(client: Any, lfn: str, rse: str) -> bool:
    try:
        client.list_request_by_did(lfn, rse, SCOPE)
    except exception.RequestNotFound:
        return False
    return True


def test_rules_on_files_where_they_lie_are_ok_at_once_in_order_and_transfer_nothing(client: Any, names: Names) -> None:
    _, files = block_with_files(client, names, "T2_CH_CERN", 3)
    lfns = [f.lfn for f in files]
    rules = [client.get_replication_rule(rule_id) for rule_id in add_rules(client, lfns, "T2_CH_CERN", "NONE")]
    assert [(r["name"], r["state"], r["locked"]) for r in rules] == [(lfn, "OK", False) for lfn in lfns]
    assert not any(has_request(client, lfn, rse) for lfn in lfns for rse in DISKS)


def test_a_call_with_one_file_that_has_its_rule_is_refused_whole(client: Any, names: Names) -> None:
    _, files = block_with_files(client, names, "T2_CH_CERN", 2)
    old, new = (f.lfn for f in files)
    add_rules(client, [old], "T2_CH_CERN", "NONE")
    with pytest.raises(exception.DuplicateRule):
        add_rules(client, [old, new], "T2_CH_CERN", "NONE")
    assert list(client.list_replication_rules(filters={"scope": SCOPE, "name": new})) == []


def test_attaching_one_known_file_refuses_the_new_one_too(client: Any, names: Names) -> None:
    block, files = block_with_files(client, names, "T2_US_Purdue", 1)
    new = names.files(1)
    client.add_replicas("T2_US_Purdue", entries(new))
    with pytest.raises(exception.FileAlreadyExists):
        client.attach_dids(SCOPE, block, entries(files + new))
    assert [f["name"] for f in client.list_content(SCOPE, block)] == [files[0].lfn]


@pytest.mark.parametrize("change", [{"bytes": 1}, {"adler32": "deadbeef"}])
def test_another_size_or_checksum_is_noticed_by_attaching_only(client: Any, names: Names, change: dict[str, Any]) -> None:
    _, (file,) = block_with_files(client, names, "T2_US_Purdue", 1)
    other_block, changed = names.block(), [{**entries([file])[0], **change}]
    client.add_dataset(SCOPE, other_block)
    assert client.add_replicas("T2_CH_CERN", changed)
    with pytest.raises(exception.FileConsistencyMismatch, match=file.lfn):
        client.attach_dids(SCOPE, other_block, changed)


def test_a_tape_rule_replicates_is_locked_and_turns_ok_when_its_files_arrive(client: Any, names: Names) -> None:
    block, files = block_with_files(client, names, "T1_US_FNAL_Disk", 2)
    (rule_id,) = add_rules(client, [block], "T1_DE_KIT_Tape", "ALL")
    rule = client.get_replication_rule(rule_id)
    assert (rule["state"], rule["locked"], rule["locks_replicating_cnt"]) == ("REPLICATING", True, 2)
    with pytest.raises(exception.UnsupportedOperation):
        client.delete_replication_rule(rule_id)
    assert settle(client, [rule_id]) == 2
    rule = client.get_replication_rule(rule_id)
    assert (rule["state"], rule["locks_ok_cnt"], rule["locks_replicating_cnt"]) == ("OK", 2, 0)
    # the requests stay: nobody may judge by them
    assert all(has_request(client, f.lfn, "T1_DE_KIT_Tape") for f in files)


def test_settling_lets_nothing_arrive_elsewhere(client: Any, names: Names) -> None:
    block, _ = block_with_files(client, names, "T1_US_FNAL_Disk", 1)
    (rule_id,) = add_rules(client, [block], "T2_CH_CERN", "ALL")
    assert settle(client, [rule_id]) == 0
    assert client.get_replication_rule(rule_id)["state"] == "REPLICATING"


def test_a_deleted_rule_keeps_its_place_until_it_is_revived(client: Any, names: Names) -> None:
    _, (file,) = block_with_files(client, names, "T2_CH_CERN", 1)
    (rule_id,) = add_rules(client, [file.lfn], "T2_CH_CERN", "NONE")
    client.delete_replication_rule(rule_id)
    assert client.get_replication_rule(rule_id)["expires_at"] is not None
    with pytest.raises(exception.DuplicateRule):
        add_rules(client, [file.lfn], "T2_CH_CERN", "NONE")
    client.update_replication_rule(rule_id, {"lifetime": None})
    assert client.get_replication_rule(rule_id)["expires_at"] is None


@pytest.mark.parametrize("rse", sorted({*DISKS, *TAPES} - {BEHIND_A_SERVER}))
def test_the_pfn_is_the_prefix_and_the_lfn(client: Any, names: Names, rse: str) -> None:
    (file,) = names.files(1)
    client.add_replicas(rse, entries([file]))
    (replica,) = client.list_replicas([did(file.lfn)])
    (pfn,) = replica["rses"][rse]
    parts = urlsplit(pfn)
    assert parts.scheme == "file"
    assert parts.path.endswith(f"/{rse}{file.lfn}")
    (protocol,) = client.get_rse(rse)["protocols"]
    assert parts.path == protocol["prefix"].rstrip("/") + file.lfn


def test_the_pfn_behind_the_xrootd_server_is_what_its_clients_name(client: Any, names: Names) -> None:
    (file,) = names.files(1)
    client.add_replicas(BEHIND_A_SERVER, entries([file]))
    (replica,) = client.list_replicas([did(file.lfn)])
    assert replica["rses"][BEHIND_A_SERVER] == [f"{of_the_stack().url}{file.lfn}"]


def test_block_names_with_a_hash_can_be_read_back_and_closed(client: Any, names: Names) -> None:
    block, _ = block_with_files(client, names, "T2_CH_CERN", 1)
    client.add_container(SCOPE, names.dataset)
    client.attach_dids(SCOPE, names.dataset, [did(block)])
    assert [c["name"] for c in client.list_content(SCOPE, names.dataset)] == [block]
    client.close(SCOPE, block)
    assert client.get_did(SCOPE, block)["open"] is False


def test_files_may_be_attached_with_an_rse_whose_name_has_lower_case_letters(client: Any, names: Names) -> None:
    block, files = names.block(), names.files(1)
    client.add_dataset(SCOPE, block)
    assert client.attach_dids(SCOPE, block, entries(files), "T2_US_Purdue")


def test_rses_are_found_by_their_attributes(client: Any) -> None:
    assert sorted(r["rse"] for r in client.list_rses("rse_type=TAPE\\cms_type=test")) == sorted(TAPES)
    assert [r["rse"] for r in client.list_rses("cms_type=test")] == [APPROVED_TAPE]
    disks = client.list_rses("(tier=2|tier=1)&cms_type=real&rse_type=DISK")
    assert sorted(r["rse"] for r in disks) == sorted(DISKS)


def test_wms2_acts_as_an_account_of_its_own(client: Any) -> None:
    assert client.whoami()["account"] == ACCOUNT
    with pytest.raises(exception.AccessDenied):
        client.add_account(f"t{uuid.uuid4().hex[:8]}", "USER", "nobody@localhost")
