"""Lay Debian's nginx into a private prefix (``deploy.prefix``), for the tests of the front end.

    python -m deploy.nginx.install --prefix DIR --cache DIR

makes ``DIR/sbin/nginx``. ``DIR`` cannot be moved. Nothing of the system's own nginx is used or changed.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from deploy.prefix import Packages, Runtime, main

PROGRAM = "sbin/nginx"


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy the program from the unpacked packages into the prefix."""
    (prefix / PROGRAM).parent.mkdir(parents=True)
    shutil.copy2(stage / "usr" / PROGRAM, prefix / PROGRAM)


def finish(prefix: Path, runtime: Runtime) -> None:
    """Bind the program to the libraries of the prefix."""
    runtime.drop_search_paths()
    runtime.bind([prefix / PROGRAM])


PACKAGES = Packages(
    name="nginx",
    suite="trixie",
    roots=("nginx", "patchelf"),
    wanted=re.compile(r"^(nginx|patchelf|zlib1g|lib.+)$"),
    # What belongs to a whole system: service manager, logins, file systems, Perl.
    unwanted=re.compile(r"^lib(perl|systemd|db5|pam|gdbm|cryptsetup|devmapper|mount|blkid|semanage|sepol|audit|debconf|elf|bpf)"),
    lay_out=lay_out,
    finish=finish,
    version=(PROGRAM, "-v"),
    otherwise="There is no other way to have it: the tests of the front end with client certificates need it.",
)

if __name__ == "__main__":
    sys.exit(main(PACKAGES, __doc__))
