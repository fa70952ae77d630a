"""Where state may live."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.stack import paths
from deploy.stack.errors import StackError


@pytest.mark.parametrize("place", ["/tmp/wms2", "/tmp"])
def test_state_below_tmp_is_refused_because_dagman_refuses_it(place: str) -> None:
    with pytest.raises(StackError, match="below /tmp"):
        paths.check_state_root(Path(place))


def test_a_link_into_tmp_is_refused_too(tmp_path: Path) -> None:
    link = tmp_path / "state"
    link.symlink_to("/tmp")
    with pytest.raises(StackError, match="below /tmp"):
        paths.check_state_root(link)


def test_the_longest_socket_decides_how_long_the_state_directory_may_be() -> None:
    longest_kind = max(map(len, paths.KINDS))
    room = paths.SOCKET_PATH_BYTES - paths.LONGEST_SOCKET_BELOW_KIND - longest_kind - 1
    paths.check_state_root(Path("/" + "s" * (room - 1)))
    with pytest.raises(StackError, match="1 bytes too long"):
        paths.check_state_root(Path("/" + "s" * room))


def test_the_default_places_of_root_pass_the_check() -> None:
    paths.check_state_root(paths.default_state_root(Path("/some/checkout"), {}, as_root=True))


def test_two_checkouts_have_different_states_and_share_their_tools() -> None:
    one, other = (paths.layout({"HOME": "/h"}, as_root=True, source=Path(f"/clone/{name}")) for name in ("a", "b"))
    assert one.state_root != other.state_root
    assert one.tools == other.tools


def test_an_ordinary_user_keeps_state_where_xdg_says() -> None:
    environment = {"XDG_STATE_HOME": "/x/state", "XDG_DATA_HOME": "/x/data"}
    layout = paths.layout(environment, as_root=False, source=Path("/clone"))
    assert layout.state_root.parent == Path("/x/state/wms2")
    assert layout.tools == Path("/x/data/wms2/tools")


def test_a_relative_state_directory_is_refused() -> None:
    with pytest.raises(StackError, match="absolute"):
        paths.layout({"WMS2_STATE_DIR": "state"}, as_root=False, source=Path("/clone"))


def test_an_unknown_kind_of_stack_is_refused() -> None:
    with pytest.raises(StackError, match="demo, test, apart, check"):
        paths.Layout(Path("/c"), Path("/s"), Path("/t")).kind("prod")
