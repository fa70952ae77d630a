"""What the adapter rests on, asked of a Rucio: the stack's real server, or the one at RUCIO_URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rucio.common.exception import DuplicateRule, FileAlreadyExists, FileConsistencyMismatch, RuleNotFound, UnsupportedOperation

from tests.support.contract import RUN, Area, certificate, given, server
from tests.support.rucio import home_at, server_url
from wms2.adapters.rucio import RucioAdapter
from wms2.adapters.rucio_session import RucioSession
from wms2.adapters.rucio_types import RucioFile, RuleState
from wms2.errors import NotFoundInService, ServiceRejected

pytestmark = pytest.mark.rucio
SECONDS = 60.0
#: Names go by themselves a day after the run.
LIFETIME_SECONDS = 86_400


def at(home: Path, url: str, directory: Path) -> Path:
    """A client configuration for this server: the stack's own, RUCIO_HOME's, or one made of the grid credentials."""
    if (home / "etc/rucio.cfg").is_file():
        return home if server_url(home) == url else home_at(home, url, directory)
    held = certificate() or ("", "")
    proxy = given("X509_USER_PROXY")
    lines = {
        "rucio_host": url, "auth_host": given("RUCIO_AUTH_URL", url), "auth_token_file_path": str(directory / "token"),
        "ca_cert": given("X509_CERT_DIR"), "account": given("RUCIO_ACCOUNT"),
        **({"auth_type": "x509_proxy", "client_x509_proxy": proxy} if proxy else
           {"auth_type": "x509", "client_cert": held[0], "client_key": held[1]}),
    }  # fmt: skip
    (directory / "etc").mkdir(parents=True)
    (directory / "etc/rucio.cfg").write_text("[client]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items() if v))
    return directory


class Place:
    """Where this run writes, and everything that it makes."""

    def __init__(self, home: Path) -> None:
        self.account, self.scope = given("RUCIO_ACCOUNT", "wms2"), given("RUCIO_SCOPE", "cms")
        self.disk = given("RUCIO_DISK", "T2_CH_CERN")
        self.tapes = given("RUCIO_TAPES", r"rse_type=TAPE\cms_type=test")
        self.rucio = RucioAdapter(home, self.account, self.scope, SECONDS)
        self.session = RucioSession(home, self.account, SECONDS)
        self.comment = f"wms2 contract {RUN}"
        self.datasets: set[str] = set()

    def raw(self, fn: Any) -> Any:
        """rucio-clients itself, whose exceptions are the contract."""
        return fn(self.session._client())

    def did(self, name: str) -> dict[str, str]:
        return {"scope": self.scope, "name": name}

    def block(self, files: int = 2) -> tuple[str, list[RucioFile]]:
        """A block with files at the disk."""
        area = Area()
        name, made = area.block_name(), [RucioFile(area.lfn(), 1000 + n, f"{n + 1:08x}") for n in range(files)]
        self.datasets.add(area.dataset)
        self.rucio.ensure_block(area.dataset, name, "Test")
        self.rucio.register_files(self.disk, name, made)
        return name, made

    def clean(self) -> None:
        """Rules deleted; names and replicas expire."""
        for rule in self.rucio.rules_with_comment(self.comment):
            self.rucio.delete_rule(rule.rule_id)
        for name in self.datasets:
            self.raw(lambda client, name=name: client.set_metadata(self.scope, name, "lifetime", LIFETIME_SECONDS))


@pytest.fixture(scope="module", name="place")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = Path(given("RUCIO_HOME") or os.environ.get("WMS2_RUCIO_HOME", "") or "/nonexistent")
    if (home / "etc/rucio.cfg").is_file():
        os.environ["WMS2_CONTRACT_STACK_RUCIO"] = server_url(home)
    url = server("RUCIO_URL", "WMS2_CONTRACT_STACK_RUCIO")
    place = Place(at(home, url, tmp_path_factory.mktemp("rucio") / "home"))
    yield place
    place.clean()


def test_container_and_block_are_made_once(place: Place) -> None:
    name, _ = place.block(files=1)
    dataset = name.partition("#")[0]
    for _ in range(2):
        place.rucio.ensure_block(dataset, name)
    assert [row["name"] for row in place.raw(lambda client: list(client.list_content(place.scope, dataset)))] == [name]


def test_one_old_file_refuses_the_whole_attachment(place: Place) -> None:
    name, files = place.block()
    new = RucioFile(Area().lfn(), 5, "0000000f")
    entries = [{**place.did(file.lfn), "bytes": file.size_bytes, "adler32": file.adler32} for file in (files[0], new)]
    place.raw(lambda client: client.add_replicas(place.disk, entries[1:]))
    with pytest.raises(FileAlreadyExists):
        place.raw(lambda client: client.attach_dids(place.scope, name, entries))
    assert set(place.rucio.blocks_held({name: ()})[name].files) == {file.lfn for file in files}
    place.rucio.register_files(place.disk, name, [*files, new])
    assert new.lfn in place.rucio.blocks_held({name: ()})[name].files


def test_another_size_is_taken_for_a_replica_and_refused_in_a_block(place: Place) -> None:
    name, files = place.block(files=1)
    other = {**place.did(files[0].lfn), "bytes": 7, "adler32": files[0].adler32}
    place.raw(lambda client: client.add_replicas(place.disk, [other]))
    second, _ = place.block(files=1)
    with pytest.raises(FileConsistencyMismatch):
        place.raw(lambda client: client.attach_dids(place.scope, second, [other]))
    assert place.rucio.blocks_held({name: ()})[name].files[files[0].lfn].size_bytes == files[0].size_bytes
    with pytest.raises(ServiceRejected, match="mismatch"):
        place.rucio.register_files(place.disk, name, [RucioFile(files[0].lfn, 7, files[0].adler32)])


def test_a_closed_block_takes_no_file(place: Place) -> None:
    name, _ = place.block(files=1)
    for _ in range(2):
        place.rucio.close_block(name)
    assert not place.rucio.blocks_held({name: ()})[name].is_open
    entry = {**place.did(Area().lfn()), "bytes": 5, "adler32": "0000000f"}
    place.raw(lambda client: client.add_replicas(place.disk, [entry]))
    with pytest.raises(UnsupportedOperation):
        place.raw(lambda client: client.attach_dids(place.scope, name, [entry]))


def test_each_file_has_one_rule_that_is_ok_where_it_lies(place: Place) -> None:
    _, files = place.block()
    names = [file.lfn for file in files]
    rules = place.rucio.protect_files(place.disk, names, place.comment)
    assert place.rucio.protect_files(place.disk, names, place.comment) == rules
    assert {place.rucio.rule(rule_id).state for rule_id in rules.values()} == {RuleState.OK}


def test_one_old_rule_refuses_the_whole_call(place: Place) -> None:
    _, (first, second) = place.block()
    place.rucio.protect_files(place.disk, [first.lfn], place.comment)
    dids = [place.did(first.lfn), place.did(second.lfn)]
    asked = {"grouping": "NONE", "comment": place.comment, "ignore_availability": True}
    with pytest.raises(DuplicateRule):
        place.raw(lambda client: client.add_replication_rule(dids, 1, place.disk, **asked))
    assert len(place.rucio.protect_files(place.disk, [first.lfn, second.lfn], place.comment)) == 2


def test_a_deleted_rule_lives_on_keeps_its_key_and_is_revived(place: Place) -> None:
    _, files = place.block(files=1)
    (rule_id,) = place.rucio.protect_files(place.disk, [files[0].lfn], place.comment).values()
    for _ in range(2):
        assert place.rucio.delete_rule(rule_id)
    assert place.rucio.rule(rule_id).expires_at is not None
    assert place.rucio.protect_files(place.disk, [files[0].lfn], place.comment) == {files[0].lfn: rule_id}
    assert place.rucio.rule(rule_id).expires_at is None


def test_an_unknown_rule_is_not_found(place: Place) -> None:
    with pytest.raises(RuleNotFound):
        place.raw(lambda client: client.get_replication_rule("0" * 32))
    assert not place.rucio.delete_rule("0" * 32)


def test_rules_are_listed_by_comment_and_by_when_they_were_made(place: Place) -> None:
    begun = datetime.now(UTC) - timedelta(minutes=5)
    _, files = place.block(files=1)
    (rule_id,) = place.rucio.protect_files(place.disk, [files[0].lfn], place.comment).values()
    assert rule_id in {rule.rule_id for rule in place.rucio.rules_with_comment(place.comment)}
    assert place.rucio.rules_with_comment(f"{place.comment} nobody's") == []
    assert rule_id in {rule.rule_id for rule in place.rucio.rules_made_since(begun).read}
    assert rule_id not in {rule.rule_id for rule in place.rucio.rules_made_since(datetime.now(UTC) + timedelta(hours=1)).read}
    assert rule_id not in {rule.rule_id for rule in place.rucio.rules_in_trouble().read}
    assert all(rule.did_type in ("DATASET", "CONTAINER") for rule in place.rucio.rules_on_blocks().read)


def test_replicas_of_blocks_are_told_in_one_answer_and_unknown_blocks_are_left_out(place: Place) -> None:
    (first, files), (second, _), unknown = place.block(), place.block(files=1), Area().block_name()
    held = place.rucio.blocks_held({first: (), second: ["T9_XX_Elsewhere"], unknown: ()})
    assert held.keys() == {first, second}
    assert {dict(file.copies)[place.disk] for file in held[second].files.values()} == {"AVAILABLE"}
    assert {lfn: dict(file.copies) for lfn, file in held[first].files.items()} == {
        f.lfn: {place.disk: "AVAILABLE"} for f in files
    }
    assert place.rucio.block_locations([first, unknown]) == {first: {place.disk: True}, unknown: {}}
    assert place.rucio.file_replicas([files[0].lfn, Area().lfn()])[files[0].lfn] == [place.disk]


def test_a_tape_is_chosen_the_same_each_time_and_a_wrong_expression_is_refused(place: Place) -> None:
    assert place.rucio.choose_tape_rse(place.tapes, "key") == place.rucio.choose_tape_rse(place.tapes, "key")
    with pytest.raises(ServiceRejected):
        place.rucio.choose_tape_rse("nosuchattribute=1", "key")


def test_an_unknown_rse_and_an_unknown_block_are_not_found(place: Place) -> None:
    name, files = place.block(files=1)
    for call in (
        lambda: place.rucio.register_files("T9_XX_Nowhere", name, [RucioFile(Area().lfn(), 5, "0000000f")]),
        lambda: place.rucio.close_block(Area().block_name()),
        lambda: place.rucio.protect_files(place.disk, [Area().lfn()], place.comment),
    ):
        with pytest.raises(NotFoundInService):
            call()
    assert files
