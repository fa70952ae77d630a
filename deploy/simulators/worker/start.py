"""``python -m deploy.simulators.worker.start PROGRAM [ARGUMENT ...]``: runs a simulated program without what it never uses.

uproot and numpy import packages that take longer than all that a simulated job does: awkward for jagged data, what reads files of
other machines, the versions of installed packages, masked arrays, docstrings. The flat trees written here are numpy's, and the
files are local. In their place there are names that nothing is an instance of. Nor is there garbage worth looking for.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ABSENT = (
    "awkward", "fsspec", "asyncio", "concurrent", "http", "email", "ssl", "importlib.metadata", "importlib.resources",
    "numpy.ma", "numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars",
)  # fmt: skip


class _Absent(ModuleType):
    """A module with every name there can be: submodules, and classes without instances."""

    __path__: list[str] = []  # noqa: RUF012  (a package, so that submodules can be imported from it)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = type(name, (), {}) if name[0].isupper() else _Absent(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    """Finds an absent package and all of its modules."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        absent = any(f"{fullname}.".startswith(f"{name}.") for name in ABSENT)
        return ModuleSpec(fullname, self, is_package=True) if absent else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


def main() -> int:
    """The program's own exit code."""
    gc.disable()
    sys.meta_path.insert(0, _Finder())
    program = sys.argv.pop(1)
    return int(import_module(f".{program}", __package__).main())


if __name__ == "__main__":
    sys.exit(main())
