"""Writes ``docs/configuration.md`` from ``wms2.conf`` and ``explained``: ``python -m deploy.docs.configuration [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from pydantic.fields import FieldInfo

from deploy.docs import written
from deploy.docs.explained import SETTINGS, VARIABLES
from wms2.conf import Conf

TARGET = written.DOCS / "configuration.md"
HEAD = """\
# Configuration

WMS2 is configured by environment variables alone. It reads them once, when a process starts; a missing or wrong one stops the
start with its name. `make` sets them all for the demo and the tests, and keeps them in the stack's `env` file.

Variables with a row in *Limits* can be changed by operators while WMS2 runs; the values here are then the defaults. They are
marked ⟳.

This page is written by `python -m deploy.docs.configuration`; edit `deploy/docs/explained.py` or `wms2/conf.py`.
"""
TAIL = """
## Where `make` keeps things

State goes to `/var/lib/wms2/<8 hex digits>` for root and to `$XDG_STATE_HOME/wms2/<8 hex digits>` (usually below
`~/.local/state`) for others; the digits come from the checkout's path. Tools go to `/var/lib/wms2/tools`, or to
`$XDG_DATA_HOME/wms2/tools`. WMS2_STATE_DIR and WMS2_TOOLS_DIR replace these. The state directory may not be below `/tmp`, and its
path must be short enough for the sockets below it (107 bytes); both are checked before anything is written. With
WMS2_DATABASE_URL or WMS2_BROKER_URL set, `make` uses those servers instead of starting its own; the Rucio server then keeps its
own state in a SQLite file when the database is not ours.
"""


def page(changeable: frozenset[str]) -> str:
    """The whole page.

    Args:
        changeable: names of settings that operators may change at run time.

    Raises:
        KeyError: a setting is explained that does not exist, or exists and is not explained.
    """
    explained = {name for group in SETTINGS.values() for name in group}
    if explained != Conf.model_fields.keys():
        raise KeyError(f"explained.py and wms2/conf.py differ in {sorted(explained ^ Conf.model_fields.keys())}")
    return "\n".join([HEAD, *_tables(changeable)]) + TAIL


def _tables(changeable: frozenset[str]) -> Iterator[str]:
    groups: dict[str, Mapping[str, str | tuple[str, str]]] = {**SETTINGS, **VARIABLES}
    for heading, group in groups.items():
        yield f"## {heading}\n"
        yield "| variable | default | meaning |"
        yield "|---|---|---|"
        for name, told in group.items():
            if isinstance(told, tuple):
                default, text = told
                yield f"| `{name}` | {default} | {text} |"
            else:
                mark = " ⟳" if name in changeable else ""
                yield f"| `WMS2_{name.upper()}`{mark} | {default_of(Conf.model_fields[name])} | {told} |"
        yield ""


def default_of(field: FieldInfo) -> str:
    """The default of a field as it would be written in the environment."""
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) or "empty"


def _page() -> str:
    from requests_app.limits import CHANGEABLE  # models can only be imported after the set-up

    return page(CHANGEABLE)


if __name__ == "__main__":
    sys.exit(written.run(TARGET, _page, sys.argv[1:]))
