"""Debian packages laid into a private prefix, without root and without touching the host's packages.

Programs of a prefix are bound to a loader and libraries of their own. They run on any host, whatever C library that has, and host
programs they start keep the host's: no LD_LIBRARY_PATH is involved. A prefix cannot be moved: the loader's path is part of each
program.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy import debian

MULTIARCH = "x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
MARKER = ".complete"


def copy_libraries(stage: Path, runtime: Path) -> None:
    """Copy loader and libraries of an unpacked tree into one directory."""
    runtime.mkdir(parents=True)
    for directory in (stage / "usr/lib", stage / "usr/lib" / MULTIARCH, stage / "lib" / MULTIARCH):
        for library in directory.iterdir() if directory.is_dir() else ():
            target = runtime / library.name
            found = ".so" in library.name and (library.is_file() or library.is_symlink())
            if found and not target.exists() and not target.is_symlink():
                shutil.copy2(library, target, follow_symlinks=False)
    if not (runtime / LOADER).exists():
        shutil.copy2(stage / "usr/lib64" / LOADER, runtime / LOADER)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Loader, libraries and ``patchelf`` of a prefix; the latter runs on these as well."""

    directory: Path

    def _patchelf(self, *words: str | Path) -> str:
        own = (self.directory / LOADER, "--library-path", self.directory, self.directory / "patchelf")
        return debian.run([*own, *words])

    def bind(self, programs: Iterable[Path]) -> None:
        """Bind programs to the loader and the libraries."""
        for program in programs:
            with program.open("rb") as stream:
                head = stream.read(4096)
            if not head.startswith(b"\x7fELF") or b"/ld-linux-x86-64.so" not in head:
                continue  # a script, a shared object or a static program: nothing to bind
            # --force-rpath writes DT_RPATH: unlike DT_RUNPATH it also serves the libraries' own dependencies and dlopen.
            loader = ("--set-interpreter", self.directory / LOADER)
            self._patchelf(*loader, "--force-rpath", "--set-rpath", self.directory, program)

    def drop_search_paths(self) -> None:
        """Let the libraries look nowhere by themselves: one with a DT_RUNPATH would pass over the DT_RPATH of the program."""
        for library in self.directory.glob("*.so*"):
            if not library.is_symlink() and library.name != LOADER and self._patchelf("--print-rpath", library).strip():
                self._patchelf("--remove-rpath", library)


@dataclass(frozen=True, slots=True)
class Packages:
    """What one prefix is made of.

    Args:
        name: what messages call it.
        suite: Debian's suite that has it.
        roots: the packages that are wanted; of all that they depend on, those whose names match ``wanted`` and not ``unwanted``.
        lay_out: copies from the unpacked packages into the prefix; libraries and ``patchelf`` are in its ``rt`` already.
        finish: binds the programs in the prefix, and writes what else it needs.
        version: the words, after the prefix, that ask a program of it for its version.
        otherwise: what a person can do who cannot have it.
    """

    name: str
    suite: str
    roots: tuple[str, ...]
    wanted: re.Pattern[str]
    unwanted: re.Pattern[str]
    lay_out: Callable[[Path, Path], None]
    finish: Callable[[Path, Runtime], None]
    version: tuple[str, ...]
    otherwise: str

    def install(self, prefix: Path, cache: Path) -> str:
        """Install unless the prefix is finished; returns the version line. Safe to repeat after an interruption."""
        done = installed_version(prefix)
        if done:
            return done
        if prefix.exists():
            shutil.rmtree(prefix)
        apt = debian.PrivateApt(cache / f"{self.name}-{self.suite}", self.suite)
        self._say(f"reading the package lists of Debian {self.suite}")
        apt.get("update")
        packages = [name for name in apt.closure(*self.roots) if self.wanted.match(name) and not self.unwanted.match(name)]
        self._say(f"downloading {len(packages)} packages")
        files = apt.download(packages)
        runtime = Runtime(prefix / "rt")
        with tempfile.TemporaryDirectory(dir=cache, prefix="stage.") as stage:
            debian.unpack(files, Path(stage))
            copy_libraries(Path(stage), runtime.directory)
            shutil.copy2(Path(stage) / "usr/bin/patchelf", runtime.directory)
            self.lay_out(Path(stage), prefix)
        self._say("binding the programs to their own libraries")
        self.finish(prefix, runtime)
        program, *arguments = self.version
        # Some programs tell their version as if it were an error.
        version = debian.run(["sh", "-c", '"$0" "$@" 2>&1', prefix / program, *arguments]).strip().splitlines()[0]
        (prefix / MARKER).write_text("\n".join([version, f"suite={self.suite}", *(file.name for file in files)]) + "\n")
        shutil.rmtree(apt.directory)  # of use only to an installation that was interrupted
        return version

    def _say(self, message: str) -> None:
        print(f"{self.name}: {message}", flush=True)


def installed_version(prefix: Path) -> str | None:
    """The version line of a finished prefix, or None."""
    marker = prefix / MARKER
    return marker.read_text().splitlines()[0] if marker.exists() else None


def main(packages: Packages, description: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command line of an installation."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=packages.suite, help="Debian suite")
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        chosen = replace(packages, suite=options.suite)
        print(f"{packages.name}:", chosen.install(options.prefix.absolute(), options.cache.absolute()))
    except debian.PackageError as error:
        print(f"{packages.name}: {error}\n{packages.otherwise}", file=sys.stderr)
        return 1
    return 0
