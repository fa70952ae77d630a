"""Lay HTCondor from a Debian suite into a private prefix (``deploy.prefix``).

    python -m deploy.htcondor.install --suite trixie --prefix DIR --cache DIR

trixie has HTCondor 23.9, sid has 25.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from deploy.prefix import MULTIARCH, Packages, Runtime, main


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy programs and configuration from the unpacked packages into the prefix."""
    usr = prefix / "usr"
    places = {sub: usr / sub for sub in ("bin", "sbin", "libexec", "share/condor", "lib/condor")}
    places |= {f"lib/{MULTIARCH}/condor": usr / "lib/condor-arch", f"lib/{MULTIARCH}/ossl-modules": prefix / "rt/ossl-modules"}
    for place, target in places.items():
        if (stage / "usr" / place).is_dir():
            shutil.copytree(stage / "usr" / place, target, symlinks=True)


def finish(prefix: Path, runtime: Runtime) -> None:
    """Bind every program."""
    files = (path for sub in ("bin", "sbin", "libexec") for path in (prefix / "usr" / sub).rglob("*"))
    runtime.bind(path for path in files if path.is_file() and not path.is_symlink())


PACKAGES = Packages(
    name="htcondor",
    suite="trixie",
    roots=("condor", "minicondor", "patchelf"),
    # Of the closure only libraries are wanted, and of those not the runtimes of tools that the daemons never load.
    # zlib's package is the one library whose name does not start with "lib".
    wanted=re.compile(r"^(condor|minicondor|patchelf|zlib1g|lib.+)$"),
    unwanted=re.compile(
        r"^lib(perl|python|js-|date-manip|systemd-shared|db5|udev|pam|onig|jq|ncurses|readline|cryptsetup|devmapper|json|"
        r"mount|blkid|semanage|sepol|audit|bsd|argon|gdbm|popt|ffi|debconf)"
    ),
    lay_out=lay_out,
    finish=finish,
    version=("usr/bin/condor_version",),
    otherwise="Or install HTCondor 23.9 or newer by other means and put condor_master on PATH: it will be used instead.",
)

if __name__ == "__main__":
    sys.exit(main(PACKAGES, __doc__))
