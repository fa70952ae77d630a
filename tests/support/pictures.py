"""Pictures of pages compared as a person would: the same things in the same places, whatever the edges of letters.

Both are made small first, so that each point is the mean of a square of 8 by 8 pixels; a letter drawn a little differently is
then a shade, while a colour, a column or a box that is gone still shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SQUARE = 8
#: Of 256 levels of grey or colour; text against none is about 60, a badge against none 20.
MOST_SHADE = 14
#: Part of all squares that may differ by more: a number that became longer, a word that moved a little.
MOST_PART = 0.01
#: Lines that wrap differently make a page this much longer or shorter.
MOST_LENGTH = 0.02


@dataclass(frozen=True)
class Difference:
    """How two pictures differ; ``part`` of the squares that both have."""

    width: int
    length: float
    part: float

    @property
    def small(self) -> bool:
        """Whether a person would call them the same."""
        return self.width == 0 and self.length <= MOST_LENGTH and self.part <= MOST_PART

    def __str__(self) -> str:
        return f"width by {self.width} px, length by {self.length:.1%}, {self.part:.2%} of the squares look different"


def compare(kept: Path, made: Path) -> Difference:
    """Compare two PNG files."""
    with Image.open(kept) as one, Image.open(made) as other:
        width, length = other.width - one.width, abs(other.height - one.height) / one.height
        box = (0, 0, min(one.width, other.width), min(one.height, other.height))
        small = [_small(picture.crop(box)) for picture in (one, other)]
    shades = np.abs(small[0] - small[1]).max(axis=2)
    return Difference(width, length, float((shades > MOST_SHADE).mean()))


def _small(picture: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    size = (max(1, picture.width // SQUARE), max(1, picture.height // SQUARE))
    return np.asarray(picture.convert("RGB").resize(size, Image.Resampling.BOX), dtype=np.int16)
