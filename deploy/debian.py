"""Debian packages without root and without touching the host's packages.

The host's apt is used with a state directory of its own and an empty dpkg status, so that it resolves whole closures of
any suite; the archive's signature is checked with the host's Debian keyring.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.stack.errors import StackError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR_VARIABLE = "WMS2_DEBIAN_MIRROR"


class PackageError(StackError):
    """Packages cannot be had; the message says what is missing and what to do."""


def run(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Run a command, return its standard output; a failure carries the command's own words."""
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=cwd, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).strip()[-2000:]
        raise PackageError(f"`{' '.join(words[:4])} ...` failed with code {result.returncode}:\n{tail}")
    return result.stdout


def mirror() -> str:
    """The Debian mirror the host's own apt uses, so that a local mirror or snapshot is respected."""
    chosen = os.environ.get(MIRROR_VARIABLE)
    if chosen:
        return chosen
    listed: list[str] = []
    for path in sorted(Path("/etc/apt").glob("sources.list*")) + sorted(Path("/etc/apt/sources.list.d").glob("*")):
        if path.is_file():
            text = path.read_text(errors="replace")
            listed += re.findall(r"^URIs:\s*(\S+)", text, re.M) + re.findall(r"^deb\s+(?:\[[^]]*]\s+)?(\S+)", text, re.M)
    found = next((url for url in listed if re.search(r"/debian/?$", url)), None)
    if found is None:
        raise PackageError(f"the sources of this machine's apt name no Debian mirror: set {MIRROR_VARIABLE} to the URL of one")
    return found


def check_host() -> None:
    """Raise PackageError on a machine without Debian's tools."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise PackageError(f"`{tool}` not found: this machine is no Debian")
    if not KEYRING.exists():
        raise PackageError(f"{KEYRING} is missing, so Debian's signatures cannot be checked: install debian-archive-keyring")


class PrivateApt:
    """apt-get on its own lists, cache and empty package status under ``directory``."""

    def __init__(self, directory: Path, suite: str) -> None:
        check_host()
        self.directory = directory
        self.debs = directory / "debs"
        for sub in ("lists/partial", "cache/archives/partial", "debs"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        (directory / "status").write_text("")
        self.sources = directory / "sources.list"
        self.sources.write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")

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

    def closure(self, *packages: str) -> list[str]:
        """Names of the packages and of everything they depend on."""
        simulated = self.get("--no-install-recommends", "-s", "install", *packages)
        return sorted(set(re.findall(r"^Inst ([^ :]+)", simulated, re.M)))

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Fetch the packages; returns the newest file of each."""
        self.get("download", *packages)
        found = []
        for package in packages:
            files = sorted(self.debs.glob(f"{package}_*.deb"), key=lambda p: p.stat().st_mtime)
            if not files:
                raise PackageError(f"apt-get downloaded no file for package {package} into {self.debs}")
            found.append(files[-1])
        return found


def unpack(files: Sequence[Path], target: Path) -> None:
    """Unpack packages into a directory; nothing is configured or run."""
    for file in files:
        run(["dpkg", "-x", file, target])
