"""Numbers, durations and names of columns in words, for pages and the admin. Pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar, cast

from django.db.models import TextChoices
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

_Words = TypeVar("_Words", bound=TextChoices)
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
#: Words of the field that are not spelled as Python spells them.
_SPELLED = {
    "cpu": "CPU", "cric": "CRIC", "dag": "DAG", "dagman": "DAGMan", "dagmans": "DAGMans", "dags": "DAGs", "dbs": "DBS",
    "dn": "DN", "id": "ID", "lfn": "LFN", "lfns": "LFNs", "pset": "PSet", "psets": "PSets", "reqmgr2": "ReqMgr2", "rse": "RSE",
    "rses": "RSEs", "rucio": "Rucio", "sha256": "SHA256",
}  # fmt: skip


class UnknownValue(str):
    """One that only a later release knows (ADR 0028): it is shown as it is."""

    __slots__ = ()
    label = value = property(str)


def word(words: type[_Words], text: str) -> _Words:
    """The member, to be shown; ``UnknownValue`` for an unknown word."""
    try:
        return words(text)
    except ValueError:
        return cast(_Words, UnknownValue(text))


def duration(seconds: float) -> str:
    """The two largest units that say something: ``3 d 4 h``, ``12 min``, ``40 s``. Seconds only below two minutes."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left} s"
    parts: list[str] = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def spelled(name: str) -> str:
    """A column's name as people write it: ``tape RSE`` of ``tape_rse``."""
    return " ".join(_SPELLED.get(each.lower(), each) for each in name.replace("_", " ").split(" "))


def exact(at: datetime | None) -> str:
    """A moment to the second: ``2026-12-24 08:00:00 UTC``; ``never`` without one."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "never"


def moment(at: datetime, text: str = "", title: str = "") -> SafeString:
    """An element for a moment that says it exactly, or another text that has it as its title. Browsers show either in their own
    time on request (``header.js``)."""
    titled = format_html(' title="{}"', title) if title else ""
    return format_html('<time datetime="{}"{}>{}</time>', f"{at:%Y-%m-%dT%H:%M:%SZ}", titled, text or exact(at))


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, or in how long: ``3 min ago``, ``in 40 s``; empty without a moment."""
    if moment is None:
        return ""
    seconds = ((now or timezone.now()) - moment).total_seconds()
    return f"in {duration(-seconds)}" if seconds <= -1 else f"{duration(seconds)} ago"


def size(number: float) -> str:
    """Bytes with a decimal prefix, as storage is counted: ``2.6 MB``."""
    value, unit = float(number), _SIZES[0]
    for unit in _SIZES:
        if abs(value) < 1000 or unit == _SIZES[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def counted(number: int, one: str, many: str = "") -> str:
    """``1 work unit``, ``3 work units``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def number(value: float) -> str:
    """With the digits that say something: ``12,000``, ``1.57``, ``0.0213``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
