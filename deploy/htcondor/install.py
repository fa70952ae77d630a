"""Lay HTCondor from a Debian suite into a private prefix, without root and without touching the host's packages.

The host's apt is used with a state directory of its own and an empty dpkg status, so that it resolves the whole
closure; the archive's signature is checked with the host's Debian keyring. The packages are unpacked, and every
program gets the unpacked loader and library directory as interpreter and RPATH. That is why the prefix cannot be
moved, and why host programs started by jobs keep the host's C library (no LD_LIBRARY_PATH is involved).

    python -m deploy.htcondor.install --suite trixie --prefix DIR --cache DIR
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ROOT_PACKAGES = ("condor", "minicondor", "patchelf")
# Of the closure only libraries are wanted, and of those not the runtimes of tools that the daemons never load.
# zlib's package is the one library whose name does not start with "lib".
WANTED = re.compile(r"^(condor|minicondor|patchelf|zlib1g|lib.+)$")
UNWANTED = re.compile(
    r"^lib(perl|python|js-|date-manip|systemd-shared|db5|udev|pam|onig|jq|ncurses|readline|cryptsetup|devmapper|json|"
    r"mount|blkid|semanage|sepol|audit|bsd|argon|gdbm|popt|ffi|debconf)"
)
MULTIARCH = "x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
MARKER = ".complete"


class InstallError(RuntimeError):
    """The installation cannot go on; the message says what is missing and what to do."""


def run(command: Sequence[str | Path], **options: object) -> str:
    """Run a command, return its standard output; a failure carries the command's own words."""
    result = subprocess.run([str(c) for c in command], text=True, capture_output=True, check=False, **options)  # type: ignore[call-overload]
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).strip()[-2000:]
        raise InstallError(f"`{' '.join(str(c) for c in command[:4])} ...` failed with code {result.returncode}:\n{tail}")
    return str(result.stdout)


def host_mirror() -> str:
    """The Debian mirror the host's own apt uses, so that a local mirror or snapshot is respected."""
    listed: list[str] = []
    for path in sorted(Path("/etc/apt").glob("sources.list*")) + sorted(Path("/etc/apt/sources.list.d").glob("*")):
        if path.is_file():
            text = path.read_text(errors="replace")
            listed += re.findall(r"^URIs:\s*(\S+)", text, re.M) + re.findall(r"^deb\s+(?:\[[^]]*]\s+)?(\S+)", text, re.M)
    return next((url for url in listed if re.search(r"/debian/?$", url)), MIRROR)


class PrivateApt:
    """apt-get on its own lists, cache and empty package status under ``cache``."""

    def __init__(self, cache: Path, suite: str) -> None:
        self.directory = cache / suite
        self.debs = self.directory / "debs"
        for sub in ("lists/partial", "cache/archives/partial", "debs"):
            (self.directory / sub).mkdir(parents=True, exist_ok=True)
        (self.directory / "status").write_text("")
        self.sources = self.directory / "sources.list"
        self.sources.write_text(f"deb [signed-by={KEYRING}] {host_mirror()} {suite} main\n")

    def get(self, *arguments: str) -> str:
        settings = {
            "Dir::Etc::SourceList": self.sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self.directory / "lists",
            "Dir::Cache": self.directory / "cache",
            "Dir::State::status": self.directory / "status",
            "APT::Architecture": "amd64",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::http::Timeout": "60",
        }
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return run(["apt-get", "-qq", *options, *arguments], cwd=self.debs)

    def closure(self) -> list[str]:
        """Names of the packages to unpack."""
        simulated = self.get("--no-install-recommends", "-s", "install", *ROOT_PACKAGES)
        names = set(re.findall(r"^Inst ([^ :]+)", simulated, re.M))
        return sorted(n for n in names if WANTED.match(n) and not UNWANTED.match(n))

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Fetch the packages; returns the newest file of each."""
        self.get("download", *packages)
        found = []
        for package in packages:
            files = sorted(self.debs.glob(f"{package}_*.deb"), key=lambda p: p.stat().st_mtime)
            if not files:
                raise InstallError(f"apt-get downloaded no file for package {package} into {self.debs}")
            found.append(files[-1])
        return found


def check_host() -> None:
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise InstallError(
                f"`{tool}` not found: the private HTCondor comes from Debian packages. Install HTCondor 23.9 or newer "
                "by your system's own means and put condor_master on PATH; it will be used instead."
            )
    if not KEYRING.exists():
        raise InstallError(f"{KEYRING} is missing, so Debian's signatures cannot be checked: install debian-archive-keyring")


def shared_libraries(stage: Path) -> Iterator[Path]:
    for directory in (stage / "usr/lib", stage / "usr/lib" / MULTIARCH, stage / "lib" / MULTIARCH):
        if directory.is_dir():
            yield from (f for f in directory.iterdir() if ".so" in f.name and (f.is_file() or f.is_symlink()))


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy programs, configuration and libraries from the unpacked packages into the prefix."""
    runtime = prefix / "rt"
    runtime.mkdir(parents=True)
    for library in shared_libraries(stage):
        target = runtime / library.name
        if not target.exists() and not target.is_symlink():
            shutil.copy2(library, target, follow_symlinks=False)
    if not (runtime / LOADER).exists():
        shutil.copy2(stage / "usr/lib64" / LOADER, runtime / LOADER)
    arch = stage / "usr/lib" / MULTIARCH
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
    runtime = prefix / "rt"
    patchelf = [str(runtime / LOADER), "--library-path", str(runtime), str(prefix / "usr/bin/patchelf")]
    count = 0
    for program in elf_programs(prefix):
        if b"/ld-linux-x86-64.so" not in program.read_bytes()[:4096]:
            continue  # a shared object or a static program: nothing to bind
        # --force-rpath writes DT_RPATH: unlike DT_RUNPATH it also serves the libraries' own dependencies and dlopen.
        run([*patchelf, "--set-interpreter", runtime / LOADER, "--force-rpath", "--set-rpath", runtime, program])
        count += 1
    return count


def installed_version(prefix: Path) -> str | None:
    """The version line of a finished prefix, or None."""
    marker = prefix / MARKER
    return marker.read_text().splitlines()[0] if marker.exists() else None


def install(suite: str, prefix: Path, cache: Path) -> str:
    """Install unless the prefix is finished; returns the version line. Safe to repeat after an interruption."""
    done = installed_version(prefix)
    if done:
        return done
    check_host()
    if prefix.exists():
        shutil.rmtree(prefix)
    apt = PrivateApt(cache, suite)
    print(f"htcondor: reading the package lists of Debian {suite}", flush=True)
    apt.get("update")
    packages = apt.closure()
    print(f"htcondor: downloading {len(packages)} packages", flush=True)
    files = apt.download(packages)
    with tempfile.TemporaryDirectory(dir=cache, prefix="stage.") as stage:
        for file in files:
            run(["dpkg", "-x", file, stage])
        lay_out(Path(stage), prefix)
    print("htcondor: binding the programs to their own libraries", flush=True)
    patched = patch_programs(prefix)
    version = run([prefix / "usr/bin/condor_version"]).splitlines()[0]
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
    except InstallError as error:
        print(f"htcondor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
