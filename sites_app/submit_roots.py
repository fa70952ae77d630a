"""Submit roots: directories below which WMS2 writes, and may remove, directories of requests (ADR 0026).

A root is WMS2's own when a marker file in it says so, with the instance. The check of a schedd writes it, and ``wms2_init`` into
the configured root. Where it is missing, nothing is removed: a row of a schedd may name any directory.
"""

from __future__ import annotations

from pathlib import Path

from wms2.conf import conf
from wms2.errors import Wms2Error

#: In the root itself. Where it is renamed, no directory is removed until all schedds were checked again.
MARKER = ".wms2-submit-root"
#: Below every root, beside the requests' directories: no request may have such a name.
SITE_JOBS, CANARIES = "site_jobs", "canaries"
RESERVED = frozenset((SITE_JOBS, CANARIES))


class RootRefused(Wms2Error):
    """A directory cannot be a submit root of this installation, and what to do."""


def root_mark(root: Path) -> None:
    """Write that the directory is this installation's own. Repeatable.

    Raises:
        RootRefused: it is another installation's.
        OSError: it is not there, or cannot be written to.
    """
    marked = root_instance(root)
    if not marked:
        (root / MARKER).write_text(f"{conf().instance}\n")
    elif marked != conf().instance:
        raise RootRefused(_others(root, marked))


def root_refused(root: Path) -> str:
    """Why nothing below may be removed; empty if it may."""
    try:
        marked = root_instance(root)
    except OSError as error:
        return f"whether {root} is WMS2's own cannot be read: {error}"
    if not marked:
        return f"{root} is not marked as WMS2's own ({MARKER}); have its schedd checked (Check)"
    return "" if marked == conf().instance else _others(root, marked)


def root_instance(root: Path) -> str:
    """Whose it is by its marker; empty without, or where that was not written whole. OSError: that cannot be read."""
    try:
        return (root / MARKER).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _others(root: Path, marked: str) -> str:
    return (
        f"{root} is the submit root of instance {marked!r}, as its {MARKER} says; give this one ({conf().instance!r}) a directory"
        " of its own, or remove that file if the other installation is gone"
    )
