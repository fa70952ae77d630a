"""Lay HTCondor from a Debian suite into a private prefix, without root and without touching the host's packages.

The packages are fetched by ``deploy.debian`` and unpacked, and every program gets the unpacked loader and library
directory as interpreter and RPATH. That is why the prefix cannot be
moved, and why host programs started by jobs keep the host's C library (no LD_LIBRARY_PATH is involved).

    python -m deploy.htcondor.install --suite trixie --prefix DIR --cache DIR
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy import bound, debian

ROOT_PACKAGES = ("condor", "minicondor", "patchelf")
# Of the closure only libraries are wanted, and of those not the runtimes of tools that the daemons never load.
# zlib's package is the one library whose name does not start with "lib".
WANTED = re.compile(r"^(condor|minicondor|patchelf|zlib1g|lib.+)$")
UNWANTED = re.compile(
    r"^lib(perl|python|js-|date-manip|systemd-shared|db5|udev|pam|onig|jq|ncurses|readline|cryptsetup|devmapper|json|"
    r"mount|blkid|semanage|sepol|audit|bsd|argon|gdbm|popt|ffi|debconf)"
)
MARKER = ".complete"


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy programs, configuration and libraries from the unpacked packages into the prefix."""
    runtime = prefix / "rt"
    bound.copy_libraries(stage, runtime)
    arch = stage / "usr/lib" / bound.MULTIARCH
    if (arch / "ossl-modules").is_dir():
        shutil.copytree(arch / "ossl-modules", runtime / "ossl-modules")
    for sub in ("bin", "sbin", "libexec", "share/condor", "lib/condor"):
        if (stage / "usr" / sub).is_dir():
            shutil.copytree(stage / "usr" / sub, prefix / "usr" / sub, symlinks=True)
    if (arch / "condor").is_dir():
        shutil.copytree(arch / "condor", prefix / "usr/lib/condor-arch", symlinks=True)


def elf_programs(prefix: Path) -> Iterator[Path]:
    for sub in ("bin", "sbin", "libexec"):
        for path in (prefix / "usr" / sub).rglob("*"):
            if path.is_file() and not path.is_symlink() and path.name != "patchelf" and path.open("rb").read(4) == b"\x7fELF":
                yield path


def patch_programs(prefix: Path) -> int:
    """Bind every program to the prefix's loader and libraries; returns how many were patched."""
    return bound.bind(elf_programs(prefix), prefix / "rt", prefix / "usr/bin/patchelf")


def installed_version(prefix: Path) -> str | None:
    """The version line of a finished prefix, or None."""
    marker = prefix / MARKER
    return marker.read_text().splitlines()[0] if marker.exists() else None


def _packages(apt: debian.PrivateApt) -> list[str]:
    return [name for name in apt.closure(*ROOT_PACKAGES) if WANTED.match(name) and not UNWANTED.match(name)]


def install(suite: str, prefix: Path, cache: Path) -> str:
    """Install unless the prefix is finished; returns the version line. Safe to repeat after an interruption."""
    done = installed_version(prefix)
    if done:
        return done
    if prefix.exists():
        shutil.rmtree(prefix)
    apt = debian.PrivateApt(cache / suite, suite)
    print(f"htcondor: reading the package lists of Debian {suite}", flush=True)
    apt.get("update")
    packages = _packages(apt)
    print(f"htcondor: downloading {len(packages)} packages", flush=True)
    files = apt.download(packages)
    with tempfile.TemporaryDirectory(dir=cache, prefix="stage.") as stage:
        debian.unpack(files, Path(stage))
        lay_out(Path(stage), prefix)
    print("htcondor: binding the programs to their own libraries", flush=True)
    patched = patch_programs(prefix)
    version = debian.run([prefix / "usr/bin/condor_version"]).splitlines()[0]
    (prefix / MARKER).write_text("\n".join([version, f"suite={suite} patched={patched}", *(f.name for f in files)]) + "\n")
    return version


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="trixie", help="Debian suite: trixie has HTCondor 23.9, sid has 25")
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        print("htcondor:", install(options.suite, options.prefix.absolute(), options.cache.absolute()))
    except debian.PackageError as error:
        hint = "Or install HTCondor 23.9 or newer by other means and put condor_master on PATH: it will be used instead."
        print(f"htcondor: {error}\n{hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
