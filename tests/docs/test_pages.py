"""The pages as a whole: links lead somewhere, pictures stand alone, decisions are listed, no machine shows through."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.support.cases import in_one_test
from tests.support.places import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
PICTURES = sorted((ROOT / "docs/img").glob("*.svg"))
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_link_inside_the_repository_leads_to_a_file() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text())]
    assert len(links) > 250
    assert [f"{named(page)}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_no_page_names_a_place_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/\S*")
    assert [f"{named(page)}: {found}" for page in PAGES for found in place.findall(page.read_text())] == []


def test_the_list_of_decisions_names_each_once() -> None:
    listed = re.findall(r"\((\d{4}-[^)]+\.md)\)", (ROOT / "docs/adr/README.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").glob("0*.md"))


@in_one_test("page", sorted((ROOT / "docs/adr").glob("0*.md")))
def test_a_decision_has_its_number_and_its_four_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.name[:4]}: ")
    assert re.findall(r"^## (.+)$", text, re.M) == ["Context", "Decision", "Consequences", "Rejected ideas"]


@in_one_test("picture", PICTURES)
def test_a_picture_stands_alone_and_says_what_it_shows(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names
    assert not names & {"image", "script", "use", "foreignObject"}
    assert "http" not in re.sub(r'xmlns="[^"]+"', "", picture.read_text())


def test_there_are_pictures_of_the_services_and_of_a_request() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert {f"img/{picture.name}" for picture in PICTURES} == set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text))
