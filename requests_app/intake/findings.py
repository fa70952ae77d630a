"""What intake finds wrong or remarkable while it reads a document. Owns the two lists; knows no ReqMgr2 field.

Reading never stops at the first fault: a bad value is recorded under its field and replaced by a harmless one, and the whole
document is refused at the end with everything that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from requests_app.intake.values import Unreadable
from wms2.errors import DocumentRefused, Problem

T = TypeVar("T")

_NAME_CHARACTERS = 120


@dataclass(slots=True)
class Findings:
    """Problems (the document is refused) and warnings (it is accepted, and they stay visible), in the order found."""

    _problems: dict[Problem, None] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong."""
        return tuple(self._problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is remarkable."""
        return tuple(self._warnings)

    def problem(self, name: str, text: str) -> None:
        """Record that ``name`` (``Step2.Multicore``) is wrong; the same finding twice counts once."""
        self._problems[Problem(field=shown_name(name), problem=text)] = None

    def warn(self, name: str, text: str) -> None:
        """Record a warning about ``name``."""
        self._warnings[f"{shown_name(name)}: {text}"] = None

    def read(self, name: str, value: object, convert: Callable[[object], T], fallback: T) -> T:
        """``value`` converted; ``fallback`` when it is absent (None or empty text) or unreadable (then a problem, too)."""
        if value is None or value == "":
            return fallback
        try:
            return convert(value)
        except Unreadable as error:
            self.problem(name, str(error))
            return fallback

    def require(self, name: str, value: object, convert: Callable[[object], T], fallback: T) -> T:
        """Like :meth:`read`, but an absent value is a problem."""
        if value is None or value == "":
            self.problem(name, "is missing")
            return fallback
        return self.read(name, value, convert, fallback)

    def refuse_if_any(self) -> None:
        """End of reading.

        Raises:
            DocumentRefused: when there is any problem, with all of them.
        """
        if self._problems:
            raise DocumentRefused(self.problems)


def shown_name(name: str) -> str:
    """A field's name for messages: the document may hold keys of any length and with any character."""
    plain = name if name.isascii() and name.isprintable() else ascii(name)[1:-1]
    return plain if len(plain) <= _NAME_CHARACTERS else plain[: _NAME_CHARACTERS - 3] + "..."
