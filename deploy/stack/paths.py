"""Where everything lives: the checkout, its state directory, and the tools shared by all checkouts of a user.

    <base>/tools/          HTCondor prefixes and the Rucio environment, installed once (keyed by version)
    <base>/<8 hex>/        state of one checkout (the hex digits come from the checkout's path)
        demo/ test/ ...    state of one kind of stack: databases, pool, logs, secrets, DAG directories
        src/               copy of a checkout that the servers' user cannot read (root only)

``<base>`` is /var/lib/wms2 for root, else $XDG_STATE_HOME/wms2 (tools: $XDG_DATA_HOME/wms2).
WMS2_STATE_DIR and WMS2_TOOLS_DIR replace the two defaults.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError

SYSTEM_BASE = Path("/var/lib/wms2")
KINDS = ("demo", "test", "apart", "check", "bench")
#: For tests: the one that many share, and that of the tests which take a service away.
TEST_KINDS = ("test", "apart")
# These go on where their last run stopped; the others (check is that of `make demo-check`) begin empty each time.
KEPT_KINDS = ("demo",)
ENV_FILE = "env"
# Linux: sun_path holds 108 bytes with the closing zero.
SOCKET_PATH_BYTES = 107
# The longest socket below a kind's directory.
LONGEST_SOCKET_BELOW_KIND = len("/postgres/.s.PGSQL.5432")


def checkout() -> Path:
    """The directory that holds ``manage.py`` and ``deploy/``."""
    return Path(__file__).resolve().parents[2]


def _base(environment: Mapping[str, str], variable: str, default: str, *, as_root: bool) -> Path:
    if as_root:
        return SYSTEM_BASE
    value = environment.get(variable, "")
    return (Path(value) if value.startswith("/") else Path.home() / default) / "wms2"


def default_state_root(source: Path, environment: Mapping[str, str], *, as_root: bool) -> Path:
    base = _base(environment, "XDG_STATE_HOME", ".local/state", as_root=as_root)
    return base / hashlib.sha256(os.fsencode(source)).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories one checkout uses."""

    source: Path
    state_root: Path
    tools: Path

    @property
    def venv(self) -> Path:
        return self.source / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def bytecode(self) -> Path:
        """Where Python keeps what it has compiled: the checkout may be another user's. One per user, as it is code that runs."""
        return self.state_root / f"cache/bytecode-{os.getuid()}"

    def packaged(self, program: str, name: str, variable: str) -> Path:
        """A server that a package of the environment brings; ``variable`` names one of the user's own."""
        found = sorted(self.venv.glob(f"lib/python3*/site-packages/{program}"))
        if not found:
            raise StackError(f"no {name} in {self.venv}: run `make setup`, or set {variable} to a server of yours")
        return found[-1]

    def kind(self, name: str) -> Path:
        if name not in KINDS:
            raise StackError(f"there is no stack called {name!r}: use one of {', '.join(KINDS)}")
        return self.state_root / name


def check_state_root(path: Path) -> None:
    """Refuse directories that cannot work, before anything is written there."""
    resolved = path.resolve()
    if resolved.is_relative_to("/tmp"):  # noqa: S108  (the very directory that is refused)
        raise StackError(
            f"the state directory {path} is below /tmp, where DAGMan refuses to keep its logs: "
            "set WMS2_STATE_DIR to another place"
        )
    longest = max(len(kind) for kind in KINDS)
    needed = len(os.fsencode(resolved)) + 1 + longest + LONGEST_SOCKET_BELOW_KIND
    if needed > SOCKET_PATH_BYTES:
        raise StackError(
            f"the state directory {path} is {needed - SOCKET_PATH_BYTES} bytes too long: sockets below it would need {needed} "
            f"bytes, {SOCKET_PATH_BYTES} are allowed. Set WMS2_STATE_DIR to a shorter path"
        )


def layout(environment: Mapping[str, str] = os.environ, *, as_root: bool | None = None, source: Path | None = None) -> Layout:
    """The layout of this checkout for the current (or the given kind of) user."""
    where = source or checkout()
    root = os.geteuid() == 0 if as_root is None else as_root
    chosen, tools = environment.get("WMS2_STATE_DIR", ""), environment.get("WMS2_TOOLS_DIR", "")
    if chosen and not chosen.startswith("/"):
        raise StackError(f"WMS2_STATE_DIR must be an absolute path, not {chosen!r}")
    state_root = Path(chosen) if chosen else default_state_root(where, environment, as_root=root)
    check_state_root(state_root)
    default_tools = _base(environment, "XDG_DATA_HOME", ".local/share", as_root=root) / "tools"
    return Layout(where, state_root, Path(tools) if tools else default_tools)
