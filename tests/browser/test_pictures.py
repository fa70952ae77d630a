"""What counts as the same picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.support.pictures import compare

INK, PAPER = (30, 40, 50), (250, 250, 250)


def drawn(path: Path, change: Callable[[ImageDraw.ImageDraw], None], length: int = 1000) -> Path:
    """A page with forty lines of text and a badge, and what ``change`` draws over it."""
    picture = Image.new("RGB", (800, length), PAPER)
    pen = ImageDraw.Draw(picture)
    for line in range(40):
        for word in range(9):
            pen.text((20 + 80 * word, 20 + 22 * line), f"word{word}", fill=INK)
    pen.rectangle((600, 100, 700, 124), fill=(251, 223, 220))
    change(pen)
    picture.save(path)
    return path


def nothing(_: ImageDraw.ImageDraw) -> None:
    """As it was."""


def test_a_letter_drawn_a_pixel_further_is_the_same_picture(tmp_path: Path) -> None:
    def nudged(pen: ImageDraw.ImageDraw) -> None:
        pen.rectangle((20, 20, 60, 34), fill=PAPER)
        pen.text((21, 20), "word0", fill=INK)

    difference = compare(drawn(tmp_path / "a.png", nothing), drawn(tmp_path / "b.png", nudged))
    assert difference.small
    assert difference.part < 0.005


@pytest.mark.parametrize(
    "change",
    [
        lambda pen: pen.rectangle((0, 300, 800, 420), fill=PAPER),
        lambda pen: pen.rectangle((600, 100, 800, 200), fill=(220, 241, 225)),
        lambda pen: pen.rectangle((0, 0, 800, 1000), fill=(20, 25, 29)),
    ],
    ids=["lines gone", "a box of another colour", "another ground"],
)
def test_what_a_person_sees_is_another_picture(tmp_path: Path, change: Callable[[ImageDraw.ImageDraw], None]) -> None:
    assert not compare(drawn(tmp_path / "a.png", nothing), drawn(tmp_path / "b.png", change)).small


def test_a_page_that_grew_is_another_picture(tmp_path: Path) -> None:
    difference = compare(drawn(tmp_path / "a.png", nothing), drawn(tmp_path / "b.png", nothing, length=1100))
    assert difference.length == pytest.approx(0.1)
    assert not difference.small
