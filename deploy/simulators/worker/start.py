"""``python -m deploy.simulators.worker.start PROGRAM [ARGUMENT ...]``: runs a simulated program without what it never uses.

uproot imports awkward, which takes longer than all that a simulated job does, and needs it for jagged data alone: the flat trees
written here are numpy's. In its place there are names that nothing is an instance of.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Absent(ModuleType):
    """A module with every name there can be: submodules, and classes without instances."""

    __path__: list[str] = []  # noqa: RUF012  (a package, so that submodules can be imported from it)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = type(name, (), {}) if name[0].isupper() else _absent(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


def _absent(name: str) -> ModuleType:
    sys.modules[name] = _Absent(name)
    return sys.modules[name]


def main() -> int:
    """The program's own exit code."""
    for name in ("awkward", "awkward.types"):  # what is imported by its full name
        _absent(name)
    program = sys.argv.pop(1)
    return int(import_module(f".{program}", __package__).main())


if __name__ == "__main__":
    sys.exit(main())
