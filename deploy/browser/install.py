"""Lay Debian's Chromium and one family of fonts into a private prefix (``deploy.prefix``).

The same browser with the same fonts on every machine, so that pictures of pages can be compared. It draws without a screen and
without a graphics driver: those and what belongs to a desktop stay out.

    python -m deploy.browser.install --prefix DIR --cache DIR

makes ``DIR/bin/chromium``. ``DIR`` cannot be moved.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

from deploy.prefix import MULTIARCH, Packages, Runtime, main

BROWSER = "usr/lib/chromium"
FONTS_CONFIGURATION = Path(__file__).with_name("fonts.conf")
STARTER = """#!/bin/sh
export FONTCONFIG_FILE={fonts}
exec {program} "$@"
"""


def program(prefix: Path) -> Path:
    """What starts the browser of a finished prefix."""
    return prefix / "bin/chromium"


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy the browser and its fonts from the unpacked packages into the prefix."""
    for library in (stage / "usr/lib" / MULTIARCH / "pulseaudio").glob("*.so"):  # which libpulse finds beside itself
        shutil.copy2(library, prefix / "rt" / library.name)
    for place in (BROWSER, "usr/share/fonts/truetype/dejavu"):
        shutil.copytree(stage / place, prefix / place, symlinks=True)


def finish(prefix: Path, runtime: Runtime) -> None:
    """Bind the browser, and write what starts it."""
    runtime.drop_search_paths()
    runtime.bind(prefix / BROWSER / name for name in ("chromium", "chrome_crashpad_handler"))
    write_starter(prefix)


def write_starter(prefix: Path) -> None:
    """Fonts' configuration, and the script that starts the browser with it."""
    fonts, starter = prefix / "fonts.conf", program(prefix)
    fonts.write_text(FONTS_CONFIGURATION.read_text().format(prefix=prefix))
    starter.parent.mkdir()
    chromium = prefix / BROWSER / "chromium"
    starter.write_text(STARTER.format(fonts=shlex.quote(str(fonts)), program=shlex.quote(str(chromium))))
    starter.chmod(0o755)


PACKAGES = Packages(
    name="browser",
    suite="trixie",
    roots=("chromium", "fonts-dejavu-core", "patchelf"),
    wanted=re.compile(r"^(chromium|chromium-common|fonts-dejavu-.+|patchelf|zlib1g|lib.+)$"),
    # Graphics drivers, their compiler, tools that are loaded by no library of the browser.
    unwanted=re.compile(
        r"^lib(llvm|z3|gl1-mesa|glx-mesa|mesa|gallium|sensors|perl|python|pam|systemd-shared|cryptsetup|devmapper|semanage|sepol|"
        r"argon|db5)"
    ),
    lay_out=lay_out,
    finish=finish,
    version=("bin/chromium", "--version"),
    otherwise="Or install Chromium by other means and set WMS2_CHROMIUM to its path.",
)

if __name__ == "__main__":
    sys.exit(main(PACKAGES, __doc__))
