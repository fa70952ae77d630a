"""The primary dataset of each step's outputs. Owns where it comes from.

A ReReco has its input's. The first part of a chain names its own, or has that of the top or of its input. A later step or task
names its own or has that of the one it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.values import is_set, name, shown


def read_primaries(parts: Sequence[Part]) -> tuple[str, ...]:
    """The primary dataset of each part; empty text where it cannot be known (a problem already)."""
    if not parts or parts[0].number != 1:
        return ("",) * len(parts)
    first = _read_first(parts[0])
    by_name, found = {parts[0].name: first}, [first]
    for part in parts[1:]:
        read = part.own.get(part.kind.input_field) if part.kind else None
        above = by_name.get(read, first) if isinstance(read, str) else first
        own = part.read("PrimaryDataset", name(lexicon.PRIMARY), above) if is_set(part.own.get("PrimaryDataset")) else above
        by_name[part.name] = own
        found.append(own)
    return tuple(found)


def _read_first(first: Part) -> str:
    dataset, above = first.own.get("InputDataset"), first.top.get("PrimaryDataset")
    primary = dataset.split("/")[1] if isinstance(dataset, str) and lexicon.DATASET.allows(dataset) else ""
    if not first.prefix:
        if is_set(above) and primary and above != primary:
            first.problem("PrimaryDataset", f"{shown(above)} differs from {primary}, the input's")
        return primary
    field, value = first.value("PrimaryDataset")
    if not value:
        field, value = ("PrimaryDataset", above) if above else (field, primary)
    return first.findings.require(field, value, name(lexicon.PRIMARY), "")
