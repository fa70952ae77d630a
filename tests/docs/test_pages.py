"""The pages as a whole: links lead somewhere, pictures stand alone, decisions are listed, no machine shows through."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deploy.stack import paths

ROOT = paths.checkout()
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
PICTURES = sorted((ROOT / "docs/img").glob("*.svg"))
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_inside_the_repository_leads_to_a_file(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_names_a_place_of_one_machine(page):
    assert re.findall(r"(?<![\w.])/(?:work|root|home/\w+)/\S*", page.read_text()) == []


def test_the_list_of_decisions_names_each_once():
    listed = re.findall(r"\((\d{4}-[^)]+\.md)\)", (ROOT / "docs/adr/README.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").glob("0*.md"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs/adr").glob("0*.md")), ids=named)
def test_a_decision_has_its_number_and_its_four_parts(page):
    text = page.read_text()
    assert text.startswith(f"# {page.name[:4]}: ")
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings == ["Context", "Decision", "Consequences", "Rejected ideas"]


@pytest.mark.parametrize("picture", PICTURES, ids=named)
def test_a_picture_stands_alone_and_says_what_it_shows(picture):
    root = ElementTree.parse(picture).getroot()
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names
    assert not names & {"image", "script", "use", "foreignObject"}
    assert "http" not in re.sub(r'xmlns="[^"]+"', "", picture.read_text())


def test_there_are_pictures_of_the_services_and_of_a_request():
    text = (ROOT / "docs/architecture.md").read_text()
    assert {f"img/{picture.name}" for picture in PICTURES} == set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text))
