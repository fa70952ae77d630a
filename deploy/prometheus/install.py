"""Lay Debian's Prometheus and Alertmanager, with promtool and amtool, into a private prefix (``deploy.prefix``).

    python -m deploy.prometheus.install --prefix DIR --cache DIR

makes ``DIR/bin/prometheus``, ``promtool``, ``alertmanager`` and ``amtool``. ``DIR`` cannot be moved. Services of the system are
neither used nor made.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from deploy.debian import PackageError
from deploy.prefix import Packages, Runtime, main

#: Name here -> name in Debian, whose Alertmanager has a longer one.
PROGRAMS = {
    "prometheus": "prometheus", "promtool": "promtool", "alertmanager": "prometheus-alertmanager", "amtool": "amtool",
}  # fmt: skip
#: Pages and templates, and what these link to beside them.
SHARED = ("prometheus", "javascript", "nodejs", "fonts-glyphicons")
#: Debian's programs read them here and nowhere else; ours in the directory that they are started in, by a name as long.
FIXED, OWN = b"/usr/share/prometheus", b"/proc/self/cwd//././."


def program(prefix: Path, name: str) -> Path:
    """One of ``PROGRAMS`` in a finished prefix."""
    return prefix / "bin" / name


def start_directory(prefix: Path) -> Path:
    """The directory that the servers must be started in."""
    return prefix / "share/prometheus"


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy the programs, and what they show, from the unpacked packages into the prefix."""
    (prefix / "bin").mkdir(parents=True)
    for name, packaged in PROGRAMS.items():
        shutil.copy2(stage / "usr/bin" / packaged, program(prefix, name))
    for name in SHARED:
        if (stage / "usr/share" / name).is_dir():
            shutil.copytree(stage / "usr/share" / name, prefix / "share" / name, symlinks=True)


def finish(prefix: Path, runtime: Runtime) -> None:
    """Bind the programs to the libraries of the prefix, the servers to its pages as well."""
    runtime.drop_search_paths()
    runtime.bind(program(prefix, name) for name in PROGRAMS)
    for name in ("prometheus", "alertmanager"):
        server = program(prefix, name)
        code = server.read_bytes()
        if FIXED not in code:
            raise PackageError(f"{name} of these packages reads its pages elsewhere than below {FIXED.decode()}")
        server.write_bytes(code.replace(FIXED, OWN))


PACKAGES = Packages(
    name="prometheus",
    suite="trixie",
    roots=("prometheus", "prometheus-alertmanager", "patchelf"),
    # The programs are Go's and need the C library alone, patchelf two more, the pages their scripts.
    wanted=re.compile(
        r"^(prometheus|promtool|prometheus-alertmanager|patchelf|libc6|libgcc-s1|libstdc\+\+6|libjs-.+|node-.+|fonts-glyphicons-.+)$"
    ),
    unwanted=re.compile(r"^$"),
    lay_out=lay_out,
    finish=finish,
    version=("bin/prometheus", "--version"),
    otherwise="There is no other way to have it: the demo with MONITORING=1 and the tests of alert rules need it.",
)

if __name__ == "__main__":
    sys.exit(main(PACKAGES, __doc__))
