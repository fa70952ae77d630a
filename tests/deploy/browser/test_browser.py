"""The tests' browser: where it comes from, and that it sees its own fonts only."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deploy import prefix as prefixes
from deploy.browser import install
from deploy.stack import tools
from deploy.stack.paths import Layout


def prefix(tmp_path: Path, script: str) -> Path:
    """A prefix whose browser is a script."""
    where = tmp_path / "a prefix"
    program = where / install.BROWSER / "chromium"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    install.write_starter(where)
    return where


def test_the_browser_starts_with_the_fonts_of_its_prefix_and_all_its_arguments(tmp_path: Path) -> None:
    where = prefix(tmp_path, 'echo "$FONTCONFIG_FILE"; printf "%s|" "$@"')
    said = subprocess.run([install.program(where), "--one", "two words"], capture_output=True, text=True, check=True).stdout
    assert said == f"{where}/fonts.conf\n--one|two words|"


def test_fonts_of_the_machine_are_not_seen(tmp_path: Path) -> None:
    tree = ElementTree.parse(prefix(tmp_path, "true") / "fonts.conf")
    assert [place.text for place in tree.iter("dir")] == [f"{tmp_path}/a prefix/usr/share/fonts"]
    assert not list(tree.iter("include"))


def test_a_browser_that_is_chosen_is_used_and_none_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path / "source", tmp_path / "state", tmp_path / "tools")
    monkeypatch.setenv("WMS2_CHROMIUM", "/opt/chromium")
    tools.ensure_browser(layout)
    assert tools.browser(layout) == Path("/opt/chromium")
    assert not (tmp_path / "tools").exists()


def test_a_finished_prefix_is_not_installed_again(tmp_path: Path) -> None:
    (tmp_path / prefixes.MARKER).write_text("Chromium 150\nsuite=trixie\n")
    assert install.PACKAGES.install(tmp_path, tmp_path / "cache") == "Chromium 150"
    assert not (tmp_path / "cache").exists()


def test_libraries_of_all_places_of_a_tree_come_together_links_as_links(tmp_path: Path) -> None:
    arch, old = tmp_path / "stage/usr/lib" / prefixes.MULTIARCH, tmp_path / "stage/usr/lib"
    arch.mkdir(parents=True)
    (arch / "libone.so.1.2").write_text("one")
    (arch / "libone.so.1").symlink_to("libone.so.1.2")
    (arch / "one.txt").write_text("no library")
    (old / "libtwo.so").write_text("two")
    (tmp_path / "stage/usr/lib64").mkdir()
    (tmp_path / "stage/usr/lib64" / prefixes.LOADER).write_text("loader")
    prefixes.copy_libraries(tmp_path / "stage", tmp_path / "rt")
    assert sorted(file.name for file in (tmp_path / "rt").iterdir()) == [
        prefixes.LOADER,
        "libone.so.1",
        "libone.so.1.2",
        "libtwo.so",
    ]
    assert (tmp_path / "rt/libone.so.1").is_symlink()
