"""Reports and ads of jobs as tables. They are what a job wrote, of whatever form: nothing here rests on that. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wms2.web import formatting

#: Lines of one table, characters of a cell, and members of a list in it.
MOST_ROWS, MOST_CHARACTERS, MOST_MEMBERS = 200, 300, 5
#: Attributes of ads that people look for, in this order.
_FIRST = (
    "ClusterId", "ProcId", "JobStatus", "Owner", "AccountingGroup", "DESIRED_Sites", "RequestCpus", "RequestMemory",
    "RequestDisk", "RequestGPUs", "MaxWallTimeMins", "JobPrio", "QDate", "JobStartDate", "JobCurrentStartDate",
    "MemoryUsage", "ResidentSetSize", "DiskUsage", "RemoteWallClockTime", "RemoteUserCpu", "NumJobStarts", "ExitCode",
    "HoldReason", "RemoveReason", "Machine", "GLIDEIN_CMSSite", "GLIDEIN_Site", "Cpus", "Memory", "Disk", "TotalLoadAvg",
    "CpuModel", "OpSysAndVer", "Microarch",
)  # fmt: skip
_ATTRIBUTE = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*=\s*(.*?)\s*$", re.MULTILINE)


class Section(NamedTuple):
    """A heading with facts (name, value), or with a table; ``left_out``: lines that are not shown."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left_out: int = 0


def sections(content: Mapping[str, Any]) -> list[Section]:
    """A document: its plain values first, then each of its lists and groups under its own heading."""
    plain = [(_title(name), _cell(name, value)) for name, value in content.items() if not isinstance(value, dict | list)]
    return [Section("", plain), *_inner(content)]


def _inner(content: Mapping[str, Any], above: str = "") -> Iterator[Section]:
    for name, value in content.items():
        title = f"{above}{_title(name)}"
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            yield _table(title, value)
        elif isinstance(value, list) and value:
            yield Section(title, (), ("",), [(_cell(name, each),) for each in value[:MOST_ROWS]], max(0, len(value) - MOST_ROWS))
        elif isinstance(value, dict) and value:
            tables = {key: each for key, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)}
            yield Section(title, [(_title(key), _cell(key, each)) for key, each in value.items() if key not in tables])
            if not above:
                yield from _inner(tables, f"{title}: ")


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Section:
    columns = list(dict.fromkeys(name for row in rows[:MOST_ROWS] for name in row))
    shown = [tuple(_cell(name, row.get(name)) for name in columns) for row in rows[:MOST_ROWS]]
    return Section(title, (), tuple(map(_title, columns)), shown, max(0, len(rows) - MOST_ROWS))


def ad_sections(text: str) -> list[Section]:
    """An ad: what people look for, then all of it."""
    found = dict(_ATTRIBUTE.findall(text))
    first = [(name, found[name].strip('"')) for name in _FIRST if name in found]
    return [Section("", first), Section("All attributes", (), ("Attribute", "Value"), sorted(found.items()))] if found else []


def _title(name: str) -> str:
    text = re.sub(r"_(mb|bytes|seconds|sec)$", "", str(name)).replace("_", " ")
    return text[:1].upper() + text[1:]


def _cell(name: str, value: Any) -> str:
    text = _text(str(name), value)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _text(name: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return _quantity(name, value)
        case list():
            return _listed((_text(name, each) for each in value[:MOST_MEMBERS]), len(value))
        case dict():
            some = list(value.items())[:MOST_MEMBERS]
            named = name if name.startswith("bytes_") else ""  # output module -> bytes
            return _listed((f"{key}: {_text(named or str(key), each)}" for key, each in some), len(value))
    return str(value)


def _listed(texts: Iterable[str], number: int) -> str:
    more = f" and {number - MOST_MEMBERS} more" if number > MOST_MEMBERS else ""
    return ", ".join(texts) + more


def _quantity(name: str, value: Any) -> str:
    if name.endswith("_bytes") or name.startswith("bytes_"):
        return formatting.size(value)
    if name.endswith(("_seconds", "_sec")):
        return formatting.duration(value) if value >= 120 else f"{value:g} s"
    unit = " MB" if name.endswith("_mb") else ""
    plain = name.endswith(("code", "fence", "attempt", "number", "run", "id", "task"))
    return str(value) if plain else f"{formatting.number(value) if isinstance(value, float) else f'{value:,}'}{unit}"
