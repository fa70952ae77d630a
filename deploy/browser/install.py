"""Lay Debian's Chromium and one family of fonts into a private prefix, without root and without touching the host's packages.

The same browser with the same fonts on every machine, so that pictures of pages can be compared. It draws without a screen and
without a graphics driver: those and what belongs to a desktop stay out.

    python -m deploy.browser.install --prefix DIR --cache DIR

makes ``DIR/bin/chromium``. ``DIR`` cannot be moved.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy import bound, debian

SUITE = "trixie"
ROOT_PACKAGES = ("chromium", "fonts-dejavu-core", "patchelf")
WANTED = re.compile(r"^(chromium|chromium-common|fonts-dejavu-.+|patchelf|zlib1g|lib.+)$")
# Graphics drivers, their compiler, tools that are loaded by no library of the browser.
UNWANTED = re.compile(
    r"^lib(llvm|z3|gl1-mesa|glx-mesa|mesa|gallium|sensors|perl|python|pam|systemd-shared|cryptsetup|devmapper|semanage|sepol|argon|db5)"
)
MARKER = ".complete"
BROWSER = "usr/lib/chromium"
FONTS_CONFIGURATION = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{prefix}/usr/share/fonts</dir>
  <cachedir>{prefix}/cache/fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <match target="font"><edit name="hinting" mode="assign"><bool>false</bool></edit></match>
  <match target="font"><edit name="antialias" mode="assign"><bool>true</bool></edit></match>
  <match target="font"><edit name="rgba" mode="assign"><const>none</const></edit></match>
</fontconfig>
"""
STARTER = """#!/bin/sh
export FONTCONFIG_FILE={fonts}
exec {program} "$@"
"""


def program(prefix: Path) -> Path:
    """What starts the browser of a finished prefix."""
    return prefix / "bin/chromium"


def installed_version(prefix: Path) -> str | None:
    """The version line of a finished prefix, or None."""
    marker = prefix / MARKER
    return marker.read_text().splitlines()[0] if marker.exists() else None


def lay_out(stage: Path, prefix: Path) -> None:
    """Copy the browser, its libraries and fonts from the unpacked packages into the prefix."""
    bound.copy_libraries(stage, prefix / "rt")
    for library in (stage / "usr/lib" / bound.MULTIARCH / "pulseaudio").glob("*.so"):  # which libpulse finds beside itself
        shutil.copy2(library, prefix / "rt" / library.name)
    for place in (BROWSER, "usr/share/fonts/truetype/dejavu"):
        shutil.copytree(stage / place, prefix / place, symlinks=True)
    shutil.copy2(stage / "usr/bin/patchelf", prefix / "rt/patchelf")


def write_starter(prefix: Path) -> None:
    """Fonts' configuration, and the script that starts the browser with it."""
    fonts, starter = prefix / "fonts.conf", program(prefix)
    fonts.write_text(FONTS_CONFIGURATION.format(prefix=prefix))
    starter.parent.mkdir()
    chromium = prefix / BROWSER / "chromium"
    starter.write_text(STARTER.format(fonts=shlex.quote(str(fonts)), program=shlex.quote(str(chromium))))
    starter.chmod(0o755)


def install(prefix: Path, cache: Path) -> str:
    """Install unless the prefix is finished; returns the version line. Safe to repeat after an interruption."""
    done = installed_version(prefix)
    if done:
        return done
    if prefix.exists():
        shutil.rmtree(prefix)
    apt = debian.PrivateApt(cache / f"browser-{SUITE}", SUITE)
    print(f"browser: reading the package lists of Debian {SUITE}", flush=True)
    apt.get("update")
    packages = [name for name in apt.closure(*ROOT_PACKAGES) if WANTED.match(name) and not UNWANTED.match(name)]
    print(f"browser: downloading {len(packages)} packages", flush=True)
    files = apt.download(packages)
    with tempfile.TemporaryDirectory(dir=cache, prefix="stage.") as stage:
        debian.unpack(files, Path(stage))
        lay_out(Path(stage), prefix)
    print("browser: binding it to its own libraries", flush=True)
    runtime = prefix / "rt"
    bound.drop_search_paths(runtime, runtime / "patchelf")
    bound.bind((prefix / BROWSER / name for name in ("chromium", "chrome_crashpad_handler")), runtime, runtime / "patchelf")
    write_starter(prefix)
    version = debian.run([program(prefix), "--version"]).strip()
    (prefix / MARKER).write_text("\n".join([version, f"suite={SUITE}", *(file.name for file in files)]) + "\n")
    shutil.rmtree(apt.directory)  # 150 MB, of use only to an installation that was interrupted
    return version


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        print("browser:", install(options.prefix.absolute(), options.cache.absolute()))
    except debian.PackageError as error:
        print(f"browser: {error}\nOr install Chromium by other means and set WMS2_CHROMIUM to its path.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
