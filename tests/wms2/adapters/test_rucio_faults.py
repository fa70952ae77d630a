"""The Rucio adapter in front of the real server while the network, the login or the token file fails."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.rucio import (
    ACCOUNT,
    SCOPE,
    Names,
    block_of,
    content,
    home_at,
    lfns_of,
    plain_client,
    rucio_home,
    server_url,
)
from wms2.adapters.rucio import RucioAdapter
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.runtime.circuits import circuits

pytestmark = [pytest.mark.rucio, pytest.mark.xdist_group("storage elements in Rucio")]  # tests/outputs_app/test_storage_rules.py

CERN, KIT_TAPE = "T2_CH_CERN", "T1_DE_KIT_Tape"


@pytest.fixture(scope="module")
def client() -> Any:
    """Rucio without the adapter, to look at states."""
    return plain_client(rucio_home())


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(server_url(rucio_home())) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(proxy: FaultProxy, tmp_path: Path) -> RucioAdapter:
    adapter = RucioAdapter(home_at(rucio_home(), proxy.url, tmp_path / "home"), ACCOUNT, SCOPE, 5.0)
    adapter.ping()  # logged in: what goes wrong later is the call itself
    return adapter


CONTAINER = ("POST", r"^/dids/cms/%2FPrimary[^/]*GEN-SIM$")
BLOCK = ("POST", r"^/dids/cms/%2FPrimary[^/]*%23[^/]*$")
REPLICAS = ("POST", r"^/replicas")
ATTACH_BLOCK = ("POST", r"GEN-SIM/dids$")
ATTACH_FILES = ("POST", r"%23[^/]*/dids$")
LOOK_INTO_BLOCK = ("GET", r"%23[^/]*/dids$")
RULES = ("POST", r"^/rules")
CLOSE = ("PUT", r"^/dids/.*status")
WRITES = (CONTAINER, BLOCK, REPLICAS, ATTACH_BLOCK, ATTACH_FILES, RULES, CLOSE)


@pytest.mark.parametrize(
    ("fault", "call"),
    [
        *((Fault.DROP_AFTER_ACTING, call) for call in WRITES),
        *((Fault.ERROR_500, call) for call in (ATTACH_FILES, LOOK_INTO_BLOCK, RULES)),
        *((Fault.REFUSE, call) for call in (LOOK_INTO_BLOCK, RULES)),
    ],
)
def test_a_call_that_fails_or_whose_answer_is_lost_is_repeated_without_harm(
    behind_proxy: RucioAdapter, proxy: FaultProxy, client: Any, names: Names, fault: Fault, call: tuple[str, str]
) -> None:
    armed = proxy.arm(fault, method=call[0], path=call[1], times=1)
    files = names.files(2)
    block = block_of(behind_proxy, names, CERN, files)
    lfns = [f.lfn for f in files]
    rules = behind_proxy.protect_files(CERN, lfns, f"w {names.run}")
    tape = behind_proxy.tape_rule(block, KIT_TAPE, f"w {names.run}")
    behind_proxy.close_block(block)
    assert armed.hits == 1, proxy.log
    assert content(client, names.dataset) == [block]
    assert content(client, block) == lfns_of(files)
    assert client.get_did(SCOPE, block)["open"] is False
    made = client.list_replication_rules(filters={"account": ACCOUNT, "comments": f"w {names.run}"})
    assert sorted(r["id"] for r in made) == sorted([*rules.values(), tape])


def test_a_server_that_hangs_is_given_up_after_the_time_limit(proxy: FaultProxy, tmp_path: Path) -> None:
    adapter = RucioAdapter(home_at(rucio_home(), proxy.url, tmp_path / "home"), ACCOUNT, SCOPE, 0.5)
    proxy.arm(Fault.HANG)
    with pytest.raises(ServiceUnavailable) as caught:
        adapter.ping()
    assert caught.value.code == "timeout"


def test_a_server_that_goes_away_is_unavailable_and_one_that_comes_back_is_used(
    behind_proxy: RucioAdapter, proxy: FaultProxy, names: Names
) -> None:
    proxy.arm(Fault.REFUSE)
    with pytest.raises(ServiceUnavailable) as caught:
        behind_proxy.ensure_container(names.dataset)
    assert (caught.value.service, caught.value.operation) == ("rucio", "ensure_container")
    assert caught.value.__cause__ is not None
    proxy.disarm()
    circuits().clear()  # as if its pause had passed
    behind_proxy.ensure_container(names.dataset)


def test_a_login_that_expired_is_renewed(behind_proxy: RucioAdapter, proxy: FaultProxy, tmp_path: Path) -> None:
    session = behind_proxy._session
    session._local.client.auth_token = "wms2-wms2-unknown-" + uuid.uuid4().hex
    (tmp_path / "home/token").write_text("expired")
    assert behind_proxy.ping().startswith("41.")
    behind_proxy.rules_with_comment("any")
    assert [path for _, path, _ in proxy.log if path.startswith("/auth")], proxy.log


def test_an_empty_token_file_is_replaced(tmp_path: Path) -> None:
    home = home_at(rucio_home(), server_url(rucio_home()), tmp_path / "home")
    (home / "token").write_text("")
    assert RucioAdapter(home, ACCOUNT, SCOPE, 60.0).rules_with_comment("any") == []
    assert (home / "token").read_text()


def test_adapters_of_two_accounts_keep_their_tokens_apart(tmp_path: Path) -> None:
    home = home_at(rucio_home(), server_url(rucio_home()), tmp_path / "home")
    assert RucioAdapter(home, ACCOUNT, SCOPE, 60.0).ping()
    other = RucioAdapter(home, "root", SCOPE, 60.0)
    with pytest.raises(ServiceRejected) as caught:  # the user of account wms2 may not act as root
        other.ping()
    assert caught.value.code == "CannotAuthenticate"


def test_the_library_leaves_the_programs_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/somewhere/program", "serve"])
    assert RucioAdapter(rucio_home(), ACCOUNT, SCOPE, 60.0).ping()
    assert sys.argv == ["/opt/somewhere/program", "serve"]
