"""Lay the XRootD server, and a worker node's clients for root:// and davs://, into a private prefix (``deploy.prefix``).

    python -m deploy.xrootd.install --prefix DIR --cache DIR

makes ``DIR/sbin`` with the server and the ``openssl`` that makes its certificate, and ``DIR/bin`` for a worker node's PATH:
``xrdcp``, ``xrdfs``, ``xrdadler32``, ``davix-*``, ``gfal-*``. ``DIR`` cannot be moved.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

from deploy import debian
from deploy.prefix import LOADER, MULTIARCH, Packages, Runtime, main

SERVER, WORKER = "sbin", "bin"
CLIENTS = ("xrdcp", "xrdfs", "xrdadler32", "davix-*")
#: What ends with 0 if a program finds its libraries.
CHECKS = (("sbin/xrootd", "-v"), ("sbin/openssl", "version"), ("bin/davix-get", "--version"), ("bin/gfal-copy", "--version"))
#: gfal's commands are Python programs. They bring their Python, for which their library is built.
PYTHON, GFAL = "gfal/python", "gfal-*"
#: What the Python's packages call it; the library of gfal is built for no other.
INTERPRETER = "python3.13"
#: Through the loader: Debian's Python is no position-independent program, and such a one is broken when it is bound.
STARTER = """#!/bin/sh
prefix={prefix}
export GFAL_PLUGIN_DIR=$prefix/gfal/plugins GFAL_CONFIG_DIR=$prefix/gfal/settings
export PYTHONHOME=$prefix/gfal PYTHONPATH=$prefix/gfal/packages PYTHONDONTWRITEBYTECODE=1
exec "$prefix/rt/{loader}" --library-path "$prefix/rt" "$prefix/gfal/python" -u -Wignore "$prefix/gfal/commands/{name}" "$@"
"""


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy server, clients and gfal with its Python from the unpacked packages into the prefix."""
    usr = stage / "usr"
    for place, patterns in ((SERVER, ("xrootd", "openssl")), (WORKER, CLIENTS), ("gfal/commands", (GFAL,))):
        (prefix / place).mkdir(parents=True)
        for program in (found for pattern in patterns for found in (usr / "bin").glob(pattern)):
            shutil.copy2(program, prefix / place / program.name)
    shutil.copy2(usr / "bin" / INTERPRETER, prefix / PYTHON)
    trees = {
        f"lib/{INTERPRETER}": f"lib/{INTERPRETER}",
        "lib/python3/dist-packages": "packages",
        f"lib/{MULTIARCH}/gfal2-plugins": "plugins",
    }
    for place, target in trees.items():
        shutil.copytree(usr / place, prefix / "gfal" / target, symlinks=True)
    shutil.copytree(stage / "etc/gfal2.d", prefix / "gfal/settings")


def finish(prefix: Path, runtime: Runtime) -> None:
    """Bind the programs, write what starts gfal's commands with their Python, and see that they start."""
    runtime.drop_search_paths()
    runtime.bind([*(prefix / SERVER).iterdir(), *(prefix / WORKER).iterdir()])
    for command in (prefix / "gfal/commands").iterdir():
        starter = prefix / WORKER / command.name
        starter.write_text(STARTER.format(prefix=shlex.quote(str(prefix)), loader=LOADER, name=command.name))
        starter.chmod(0o755)
    for words in CHECKS:
        debian.run([prefix / words[0], *words[1:]])


PACKAGES = Packages(
    name="xrootd",
    suite="trixie",
    roots=(
        "xrootd-server", "xrootd-server-plugins", "xrootd-client", "xrootd-plugins", "davix", "gfal2-util-scripts",
        "gfal2-plugin-file", "gfal2-plugin-http", "gfal2-plugin-xrootd", "python3-gfal2", "openssl", "patchelf",
    ),
    wanted=re.compile(r"^(xrootd-.+|davix|openssl|gfal2-.+|python3-gfal2.*|python3\.\d+-minimal|patchelf|zlib1g|lib.+)$"),
    # What belongs to a whole system: service manager, logins, file systems, Perl and Tcl.
    unwanted=re.compile(
        r"^lib(perl|tcl|systemd-shared|db5|pam|gdbm|cryptsetup|devmapper|mount|blkid|semanage|sepol|audit|apparmor|debconf)"
    ),
    lay_out=lay_out,
    finish=finish,
    version=("bin/xrdcp", "--version"),
    otherwise="There is no other way to have it: the stack's site with root:// alone needs this server.",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(PACKAGES, __doc__))
