"""Programs of unpacked Debian packages, bound to a loader and libraries of their own.

A bound program runs on any host, whatever C library that has, and host programs it starts keep the host's: no LD_LIBRARY_PATH is
involved. Its prefix cannot be moved, because the loader's path is part of the program.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy import debian

MULTIARCH = "x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"


def shared_libraries(stage: Path) -> Iterator[Path]:
    """The libraries of an unpacked tree."""
    for directory in (stage / "usr/lib", stage / "usr/lib" / MULTIARCH, stage / "lib" / MULTIARCH):
        if directory.is_dir():
            yield from (f for f in directory.iterdir() if ".so" in f.name and (f.is_file() or f.is_symlink()))


def copy_libraries(stage: Path, runtime: Path) -> None:
    """Copy loader and libraries of an unpacked tree into one directory."""
    runtime.mkdir(parents=True)
    for library in shared_libraries(stage):
        target = runtime / library.name
        if not target.exists() and not target.is_symlink():
            shutil.copy2(library, target, follow_symlinks=False)
    if not (runtime / LOADER).exists():
        shutil.copy2(stage / "usr/lib64" / LOADER, runtime / LOADER)


def bind(programs: Iterable[Path], runtime: Path, patchelf: Path) -> int:
    """Bind programs to the loader and the libraries in ``runtime``; returns how many were. ``patchelf`` runs on these as well."""
    command = _patchelf(runtime, patchelf)
    count = 0
    for program in programs:
        with program.open("rb") as stream:
            head = stream.read(4096)
        if b"/ld-linux-x86-64.so" not in head:
            continue  # a shared object or a static program: nothing to bind
        # --force-rpath writes DT_RPATH: unlike DT_RUNPATH it also serves the libraries' own dependencies and dlopen.
        debian.run([*command, "--set-interpreter", runtime / LOADER, "--force-rpath", "--set-rpath", runtime, program])
        count += 1
    return count


def drop_search_paths(runtime: Path, patchelf: Path) -> None:
    """Let the libraries look nowhere by themselves: one with a DT_RUNPATH would pass over the DT_RPATH of the program."""
    command = _patchelf(runtime, patchelf)
    for library in runtime.glob("*.so*"):
        if not library.is_symlink() and library.name != LOADER and debian.run([*command, "--print-rpath", library]).strip():
            debian.run([*command, "--remove-rpath", library])


def _patchelf(runtime: Path, patchelf: Path) -> list[str | Path]:
    return [runtime / LOADER, "--library-path", runtime, patchelf]
