"""The Rucio adapter against the real server: every method, again, and after partial state."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from tests.support.rucio import (
    ACCOUNT,
    SCOPE,
    TAPES,
    Names,
    block_of,
    content,
    entries,
    lfns_of,
    plain_client,
    rucio_home,
    settle,
)
from wms2.adapters.rucio import RucioAdapter
from wms2.adapters.rucio_types import RucioFile, RuleState
from wms2.errors import NotFoundInService, ServiceRejected

pytestmark = [pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]  # tests/outputs_app/test_storage_rules.py

CERN, PURDUE, FNAL = "T2_CH_CERN", "T2_US_Purdue", "T1_US_FNAL_Disk"
KIT_TAPE = "T1_DE_KIT_Tape"
UNKNOWN_RULE = "0" * 32
Calls = list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def client() -> Any:
    """Rucio without the adapter, to make and to look at states."""
    return plain_client(rucio_home())


@pytest.fixture(scope="module")
def rucio() -> RucioAdapter:
    return RucioAdapter(rucio_home(), ACCOUNT, SCOPE, 60.0)


@pytest.fixture
def names() -> Names:
    return Names()


def test_ping_gives_the_version(rucio: RucioAdapter) -> None:
    assert rucio.ping().startswith("41.")


# --- container, block


def test_a_block_is_made_in_its_container_once(rucio: RucioAdapter, client: Any, names: Names) -> None:
    block, other = names.block(), names.block()
    for _ in range(2):
        rucio.ensure_container(names.dataset)
        rucio.ensure_block(names.dataset, block)
        rucio.ensure_block(names.dataset, other)
    assert content(client, names.dataset) == sorted([block, other])
    assert rucio.blocks_in(names.dataset, SCOPE) == {block, other}
    assert client.get_did(SCOPE, block)["type"] == "DATASET"
    assert client.get_did(SCOPE, block)["open"] is True


def test_a_block_that_was_made_but_not_put_into_its_container_is_put_there(
    rucio: RucioAdapter, client: Any, names: Names
) -> None:
    block = names.block()
    client.add_dataset(SCOPE, block)
    rucio.ensure_block(names.dataset, block)
    assert content(client, names.dataset) == [block]


def test_a_closed_block_stays_closed(rucio: RucioAdapter, client: Any, names: Names) -> None:
    block = block_of(rucio, names, CERN, names.files(1))
    for _ in range(2):
        rucio.close_block(block)
        rucio.ensure_block(names.dataset, block)
    assert client.get_did(SCOPE, block)["open"] is False


def test_closing_an_unknown_block_is_refused(rucio: RucioAdapter, names: Names) -> None:
    with pytest.raises(NotFoundInService) as caught:
        rucio.close_block(names.block())
    assert caught.value.code == "DataIdentifierNotFound"


def test_an_unknown_scope_is_refused(names: Names) -> None:
    adapter = RucioAdapter(rucio_home(), ACCOUNT, "nosuch", 60.0)
    with pytest.raises(NotFoundInService) as caught:
        adapter.ensure_container(names.dataset)
    assert (caught.value.service, caught.value.operation, caught.value.code) == ("rucio", "ensure_container", "ScopeNotFound")


def test_what_was_there_already_is_not_counted_as_a_refusal(rucio: RucioAdapter, names: Names, calls: Calls) -> None:
    block, files = names.block(), names.files(1)
    for _ in range(2):
        rucio.ensure_block(names.dataset, block)
        rucio.register_files(CERN, block, files)
        rucio.protect_files(CERN, [files[0].lfn], "w")
        rucio.close_block(block)
    rucio.delete_rule(UNKNOWN_RULE)
    assert {outcome for _, _, outcome in calls} == {"ok"}
    with pytest.raises(NotFoundInService):
        rucio.rule(UNKNOWN_RULE)
    assert calls[-1] == ("rucio", "rule", "not_found")


# --- files


def test_files_get_replicas_and_are_attached_once(rucio: RucioAdapter, client: Any, names: Names) -> None:
    files = names.files(3)
    block = block_of(rucio, names, CERN, files)
    rucio.register_files(CERN, block, files)
    rows = {row["name"]: (row["bytes"], row["adler32"]) for row in client.list_content(SCOPE, block)}
    assert rows == {f.lfn: (f.size_bytes, f.adler32) for f in files}
    assert rucio.file_replicas([f.lfn for f in files]) == {f.lfn: [CERN] for f in files}


@pytest.mark.parametrize("attached", [0, 1, 2])
def test_registration_that_was_interrupted_is_completed(rucio: RucioAdapter, client: Any, names: Names, attached: int) -> None:
    files, block = names.files(3), names.block()
    rucio.ensure_block(names.dataset, block)
    client.add_replicas(CERN, entries(files[:2]))
    if attached:
        client.attach_dids(SCOPE, block, entries(files[:attached]))
    rucio.register_files(CERN, block, files)
    assert content(client, block) == lfns_of(files)


@pytest.mark.slow
def test_more_files_than_one_call_takes_are_registered(rucio: RucioAdapter, client: Any, names: Names) -> None:
    files = names.files(501)
    block = block_of(rucio, names, CERN, files)
    assert content(client, block) == lfns_of(files)


def test_no_files_are_registered_without_a_complaint(rucio: RucioAdapter, client: Any, names: Names) -> None:
    assert content(client, block_of(rucio, names, CERN, [])) == []


def test_the_files_of_a_block_may_lie_at_several_rses(rucio: RucioAdapter, client: Any, names: Names) -> None:
    at_cern, at_purdue = names.files(2), names.files(1)
    block = block_of(rucio, names, CERN, at_cern)
    rucio.register_files(PURDUE, block, at_purdue)
    assert content(client, block) == lfns_of(at_cern + at_purdue)
    assert rucio.block_locations([block]) == {block: {CERN: False, PURDUE: False}}


@pytest.mark.parametrize("changed", [{"size_bytes": 7}, {"adler32": "deadbeef"}])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the block", "in another block"])
def test_a_file_known_with_another_size_or_checksum_is_refused_by_name(
    rucio: RucioAdapter, client: Any, names: Names, changed: dict[str, Any], elsewhere: bool
) -> None:
    good, bad = names.files(2)
    block = block_of(rucio, names, CERN, [good, bad])
    if elsewhere:
        block = names.block()
        rucio.ensure_block(names.dataset, block)
    facts = {"lfn": bad.lfn, "size_bytes": bad.size_bytes, "adler32": bad.adler32} | changed
    with pytest.raises(ServiceRejected, match=bad.lfn) as caught:
        rucio.register_files(CERN, block, [good, RucioFile(**facts)])
    assert caught.value.code == "FileConsistencyMismatch"
    kept = client.get_metadata(SCOPE, bad.lfn)
    assert (kept["bytes"], kept["adler32"]) == (bad.size_bytes, bad.adler32)


def test_a_closed_block_takes_no_new_file_but_confirms_its_own(rucio: RucioAdapter, client: Any, names: Names) -> None:
    files = names.files(2)
    block = block_of(rucio, names, CERN, files)
    rucio.close_block(block)
    rucio.register_files(CERN, block, files)
    with pytest.raises(ServiceRejected) as caught:
        rucio.register_files(CERN, block, [*files, *names.files(1)])
    assert caught.value.code == "UnsupportedOperation"
    assert content(client, block) == lfns_of(files)


@pytest.mark.parametrize(
    ("rse", "lfn", "code"),
    [
        ("T2_XX_Nowhere", "/store/mc/x.root", "RSENotFound"),
        (CERN, "/store/mc/with space.root", "InvalidObject"),
    ],
)
def test_an_unknown_rse_or_a_bad_name_is_refused(rucio: RucioAdapter, names: Names, rse: str, lfn: str, code: str) -> None:
    block = names.block()
    rucio.ensure_block(names.dataset, block)
    with pytest.raises(ServiceRejected) as caught:
        rucio.register_files(rse, block, [RucioFile(lfn, 1, "00000001")])
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_files_for_an_unknown_block_are_refused(rucio: RucioAdapter, names: Names) -> None:
    with pytest.raises(NotFoundInService) as caught:
        rucio.register_files(CERN, names.block(), names.files(1))
    assert caught.value.code == "DataIdentifierNotFound"


# --- rules on files


def test_each_file_gets_one_rule_that_is_ok_at_once_and_found_again(rucio: RucioAdapter, client: Any, names: Names) -> None:
    files = names.files(3)
    block_of(rucio, names, CERN, files)
    lfns = [f.lfn for f in files]
    rules = rucio.protect_files(CERN, lfns, f"wms2 {names.run}")
    assert rucio.protect_files(CERN, lfns, f"wms2 {names.run}") == rules
    assert rucio.protect_files(CERN, lfns, "another comment") == rules
    infos = {rule_id: rucio.rule(rule_id) for rule_id in rules.values()}
    assert {lfn: infos[rule_id].name for lfn, rule_id in rules.items()} == {lfn: lfn for lfn in lfns}
    for info in infos.values():
        assert (info.state, info.rse_expression, info.did_type, info.locks_ok) == (RuleState.OK, CERN, "FILE", 1)
        assert (info.activity, info.comment, info.is_locked) == ("Production Output", f"wms2 {names.run}", False)
        assert (info.expires_at, info.error, info.locks_replicating, info.locks_stuck) == (None, "", 0, 0)
    assert Counter(r["name"] for r in client.list_replication_rules({"comments": f"wms2 {names.run}"})) == Counter(lfns)


def test_files_that_have_rules_already_keep_them_and_the_others_get_theirs(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(4)
    block_of(rucio, names, CERN, files)
    lfns = [f.lfn for f in files]
    before = rucio.protect_files(CERN, [lfns[2], lfns[0]], "first try")
    after = rucio.protect_files(CERN, lfns, "second try")
    assert sorted(after) == sorted(lfns)
    assert {lfn: after[lfn] for lfn in before} == before
    assert len(set(after.values())) == 4


def test_a_dying_rule_is_revived(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(2)
    block_of(rucio, names, CERN, files)
    lfns = [f.lfn for f in files]
    rules = rucio.protect_files(CERN, lfns, "w")
    assert rucio.delete_rule(rules[lfns[0]]) is True
    dying = rucio.rule(rules[lfns[0]])
    assert dying.expires_at is not None and dying.expires_at.tzinfo is not None
    assert rucio.protect_files(CERN, lfns, "w") == rules
    assert rucio.rule(rules[lfns[0]]).expires_at is None


def test_the_same_file_asked_twice_in_one_call_gets_one_rule(rucio: RucioAdapter, names: Names) -> None:
    (file,) = names.files(1)
    block_of(rucio, names, CERN, [file])
    assert list(rucio.protect_files(CERN, [file.lfn, file.lfn], "w")) == [file.lfn]


@pytest.mark.slow
def test_more_files_than_one_call_takes_are_protected(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(260)
    block_of(rucio, names, CERN, files)
    rules = rucio.protect_files(CERN, [f.lfn for f in files], f"many {names.run}")
    assert sorted(rules) == lfns_of(files)
    assert {info.rule_id for info in rucio.rules_with_comment(f"many {names.run}")} == set(rules.values())


def test_no_files_need_no_rule(rucio: RucioAdapter) -> None:
    assert rucio.protect_files(CERN, [], "w") == {}


def test_a_file_may_be_protected_at_each_rse_where_it_lies(rucio: RucioAdapter, names: Names) -> None:
    (file,) = names.files(1)
    block = block_of(rucio, names, CERN, [file])
    rucio.register_files(PURDUE, block, [file])
    at_cern, at_purdue = (rucio.protect_files(rse, [file.lfn], "w")[file.lfn] for rse in (CERN, PURDUE))
    assert at_cern != at_purdue
    assert rucio.file_replicas([file.lfn]) == {file.lfn: [CERN, PURDUE]}


def test_unknown_files_and_rses_are_refused(rucio: RucioAdapter, names: Names) -> None:
    (file,) = names.files(1)
    with pytest.raises(NotFoundInService) as caught:
        rucio.protect_files(CERN, [file.lfn], "w")
    assert caught.value.code == "DataIdentifierNotFound"
    block_of(rucio, names, CERN, [file])
    with pytest.raises(ServiceRejected) as refused:
        rucio.protect_files("T2_XX_Nowhere", [file.lfn], "w")
    assert refused.value.code == "InvalidRSEExpression"


# --- tape rules


def test_a_block_gets_one_tape_rule_that_is_ok_when_its_files_arrived(rucio: RucioAdapter, client: Any, names: Names) -> None:
    block = block_of(rucio, names, FNAL, names.files(2))
    rule_id = rucio.tape_rule(block, KIT_TAPE, f"tape {names.run}")
    assert rucio.tape_rule(block, KIT_TAPE, "again") == rule_id
    rule = rucio.rule(rule_id)
    assert (rule.state, rule.is_locked, rule.locks_replicating, rule.did_type) == (RuleState.REPLICATING, True, 2, "DATASET")
    assert settle(client, [rule_id]) == 2
    rule = rucio.rule(rule_id)
    assert (rule.state, rule.locks_ok, rule.locks_replicating) == (RuleState.OK, 2, 0)
    assert rucio.block_locations([block]) == {block: {FNAL: True, KIT_TAPE: True}}


def test_what_a_rule_on_a_block_keeps_is_told_by_name(rucio: RucioAdapter, client: Any, names: Names) -> None:
    """A file that was taken out of the block is not kept any more, whatever its rule counts; one on its way is not kept yet."""
    files = names.files(3)
    block = block_of(rucio, names, FNAL, files[:2])
    rule = rucio.rule(rucio.tape_rule(block, KIT_TAPE, "w"))
    assert rucio.files_kept(block, rule) == set(), "none has arrived"
    settle(client, [rule.rule_id])
    assert rucio.files_kept(block, rule) == rucio.files_kept(block, rule, {KIT_TAPE}) == {file.lfn for file in files[:2]}
    assert rucio.files_kept(block, rule, {FNAL}) == set()
    elsewhere = names.block()
    rucio.ensure_block(names.dataset, elsewhere)
    rucio.register_files(FNAL, elsewhere, files[2:])
    assert files[2].lfn not in rucio.files_kept(block, rule)


def test_what_a_containers_rule_keeps_of_each_block_is_known_once_it_is_there(
    rucio: RucioAdapter, client: Any, names: Names
) -> None:
    files = names.files(2)
    block = block_of(rucio, names, FNAL, files)
    container = block.partition("#")[0]
    rule_id = rucio.disk_rule(container, CERN, "w", "Production Output", copies=1, lifetime_seconds=None)
    assert rucio.files_kept(block, rucio.rule(rule_id)) == set()
    assert settle(client, [rule_id], CERN) == 2
    assert rucio.files_kept(block, rucio.rule(rule_id)) == {file.lfn for file in files}
    assert rucio.files_kept(block, rucio.rule(rule_id), rucio.tapes()) == set()
    later = f"{container}#later"
    rucio.ensure_block(container, later)
    rucio.register_files(FNAL, later, names.files(1))
    rucio.close_block(later)
    rule = rucio.rule(rule_id)
    assert (rule.locks_ok, rucio.files_kept(later, rule)) == (2, set()), "the rule has not come to it yet"


def test_a_deleted_tape_rule_is_revived_and_locked_again(rucio: RucioAdapter, names: Names) -> None:
    block = block_of(rucio, names, FNAL, names.files(1))
    rule_id = rucio.tape_rule(block, KIT_TAPE, "w")
    assert rucio.delete_rule(rule_id) is True
    assert rucio.rule(rule_id).expires_at is not None
    assert rucio.tape_rule(block, KIT_TAPE, "w") == rule_id
    rule = rucio.rule(rule_id)
    assert (rule.expires_at, rule.is_locked) == (None, True)


def test_the_tape_rse_is_the_same_for_a_key_and_follows_the_weights_over_keys(rucio: RucioAdapter) -> None:
    expression = "rse_type=TAPE\\cms_type=test"
    assert len({rucio.choose_tape_rse(expression, "/A/B-v1/C") for _ in range(3)}) == 1
    chosen = Counter(rucio.choose_tape_rse(expression, f"/Primary{n}/Era-Proc-v1/AOD") for n in range(30))
    assert set(chosen) == set(TAPES)
    assert chosen["T1_US_FNAL_Tape"] > chosen["T1_DE_KIT_Tape"]  # 40 to 10


def test_one_rse_may_be_named_plainly(rucio: RucioAdapter) -> None:
    assert rucio.choose_tape_rse(KIT_TAPE, "any") == KIT_TAPE


@pytest.mark.parametrize("expression", ["tier=9&rse_type=TAPE", "T1_XX_Nowhere_Tape", "tier=1&&"])
def test_an_expression_that_is_wrong_or_gives_nothing_is_refused(rucio: RucioAdapter, expression: str) -> None:
    with pytest.raises(ServiceRejected) as caught:
        rucio.choose_tape_rse(expression, "key")
    assert caught.value.code == "InvalidRSEExpression"


# --- single rules


def test_deleting_a_rule_again_is_fine_and_an_unknown_one_is_gone(rucio: RucioAdapter, names: Names) -> None:
    (file,) = names.files(1)
    block_of(rucio, names, CERN, [file])
    rule_id = rucio.protect_files(CERN, [file.lfn], "w")[file.lfn]
    assert [rucio.delete_rule(rule_id) for _ in range(2)] == [True, True]
    assert rucio.delete_rule(UNKNOWN_RULE) is False


def test_an_unknown_rule_is_not_found_and_a_malformed_id_is_refused(rucio: RucioAdapter) -> None:
    with pytest.raises(NotFoundInService) as caught:
        rucio.rule(UNKNOWN_RULE)
    assert caught.value.code == "RuleNotFound"
    for call in (rucio.rule, rucio.delete_rule):
        with pytest.raises(ServiceRejected, match="not-an-id") as refused:
            call("not-an-id")
        assert not isinstance(refused.value, NotFoundInService)


def test_rules_are_found_by_exactly_their_comment(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(2)
    block_of(rucio, names, CERN, files)
    (one,) = rucio.protect_files(CERN, [files[0].lfn], f"unit 1 {names.run}").values()
    rucio.protect_files(CERN, [files[1].lfn], f"unit 10 {names.run}")
    assert [info.rule_id for info in rucio.rules_with_comment(f"unit 1 {names.run}")] == [one]
    assert rucio.rules_with_comment(f"nothing {names.run}") == []


# --- locations


def test_blocks_are_complete_where_all_their_files_are(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(2)
    whole, split = block_of(rucio, names, CERN, files), names.block()
    rucio.register_files(PURDUE, whole, files[:1])
    rucio.ensure_block(names.dataset, split)
    empty, unknown = names.block(), names.block()
    rucio.ensure_block(names.dataset, empty)
    assert rucio.block_locations([whole, split, empty, unknown]) == {
        whole: {CERN: True, PURDUE: False},
        split: {},
        empty: {},
        unknown: {},
    }
    assert rucio.block_locations([]) == {}


def test_copies_on_their_way_do_not_count(rucio: RucioAdapter, names: Names) -> None:
    files = names.files(1)
    block = block_of(rucio, names, CERN, files)
    rucio.tape_rule(block, KIT_TAPE, "w")
    assert rucio.block_locations([block])[block] == {CERN: True}
    assert rucio.file_replicas([files[0].lfn]) == {files[0].lfn: [CERN]}


def test_an_unknown_file_lies_nowhere(rucio: RucioAdapter) -> None:
    lfn = f"/store/mc/{uuid.uuid4()}.root"
    assert rucio.file_replicas([lfn]) == {lfn: []}
