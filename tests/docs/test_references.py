"""What a file refers to is in the repository: pages, their headings, decisions. Sources outside have one name each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import ROOT

#: What others wrote, or a machine.
SKIPPED = {"__pycache__", ".git", ".venv", ".static", "staticfiles", "state", "secrets"}
#: A page by its path, seen from the file or one of its folders; with the anchor or the heading that follows it, if one does.
PAGE = re.compile(r"(?<![\w./:*\\-])((?:\.\./)*[\w-][\w./-]*\.md)\b(?:#([\w-]+))?(?:`*, (?:section )?([\"A-Z].{0,80}))?")
DECISION = re.compile(r"\bADR (\d{4})\b")
#: Names that say nothing to who reads this repository alone, and other spellings of those that docs/design/README.md explains.
ELSEWHERE = re.compile(
    r"§|\b(?:decisions|contracts|conventions|model|htcondor|main|issue) \d|\barchitecture \(|\bcontrol[- ]plane\b"
    r"|\bdecisions, section \d|\b[Ss]pec(?:ification)?,? sections? \d|\b[Ss]pecification \d|\bopen question \d"
)


def _texts() -> Iterator[tuple[Path, str]]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.endswith(("_cache", ".hypothesis", ".egg-info"))
        )
        for name in sorted(names):
            path = Path(folder, name)
            if path != Path(__file__).resolve() and path.suffix not in (".png", ".svg", ".pyc"):
                try:
                    yield path, path.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue


@cache
def _headings(page: Path) -> tuple[str, ...]:
    return tuple(text.replace("`", "") for text in re.findall(r"^#+ (.+)$", page.read_text(), re.M))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _page(path: Path, name: str) -> Path | None:
    """Where the name leads from this file; texts of ``deploy/docs`` become parts of a page."""
    places = [folder for folder in (path.parent, *path.parent.parents) if folder.is_relative_to(ROOT)]
    if path.is_relative_to(ROOT / "deploy/docs"):
        places.append(ROOT / "docs")
    return next((page for page in (place / name for place in places) if page.is_file()), None)


def _wrong(path: Path, text: str) -> Iterator[str]:
    flat = re.sub(r"\n[ \t]*(?:#:?[ \t]*)?", " ", text) if path.suffix != ".md" else text
    for name, anchor, heading in PAGE.findall(flat):
        page = _page(path, name)
        if page is None:
            yield f"{name} is no page"
        elif anchor and anchor not in map(_anchor, _headings(page)):
            yield f"{name} has no heading #{anchor}"
        elif heading and not any(re.match(rf'"?{re.escape(known)}(?!\w)', heading) for known in _headings(page)):
            yield f"{name} has no heading that {heading!r} begins with"
    for anchor in re.findall(r"\]\(#([\w-]+)\)", text) if path.suffix == ".md" else ():
        if anchor not in map(_anchor, _headings(path)):
            yield f"it has no heading #{anchor}"
    for number in DECISION.findall(text):
        if not list((ROOT / "docs/adr").glob(f"{number}-*.md")):
            yield f"there is no ADR {number}"


@pytest.fixture(scope="module")
def texts() -> list[tuple[Path, str]]:
    return list(_texts())


def test_pages_headings_and_decisions_that_are_named_are_there(texts):
    assert len(texts) > 500
    wrong = [f"{path.relative_to(ROOT)}: {what}" for path, text in texts for what in _wrong(path, text)]
    assert not wrong, "\n".join(wrong)


def test_sources_outside_the_repository_go_by_the_names_that_the_design_pages_explain(texts):
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found.group()}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        for found in ELSEWHERE.finditer(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(``docs/design/model.md``, Claims)", False),
        ("docs/design/model.md, Clams", True),
        ("docs/design/muddle.md", True),
        ("``muddle.md``", True),
        ("see docs/design/model.md, which", False),
        ("[x](design/model.md#claims)", False),
        ("[x](design/model.md#clams)", True),
        ("# as docs/design/model.md,\n# Claims say", False),
        ("ADR 0002", False),
        ("ADR 4004", True),
    ],
)
def test_a_wrong_reference_is_noticed(text, wrong):
    assert bool(list(_wrong(ROOT / "deploy/docs/configuration.py", text))) is wrong
