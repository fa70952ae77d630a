"""The primary dataset of each step's outputs. Owns where it comes from.

A ReReco has its input's. The first part of a chain names its own, or has that of the top or of its input. A later step or task
names its own or has that of the one it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from requests_app.intake import lexicon
from requests_app.intake.chain import StepView
from requests_app.intake.findings import Findings
from requests_app.intake.values import is_set, name, shown


def read_primaries(document: Mapping[str, object], views: Sequence[StepView], findings: Findings) -> tuple[str, ...]:
    """The primary dataset of each view; empty text where it cannot be known (a problem already)."""
    if not views or views[0].number != 1:
        return ("",) * len(views)
    first = _read_first(document, views[0], findings)
    return _of_parts(first, views, findings)


def _read_first(document: Mapping[str, object], first: StepView, findings: Findings) -> str:
    dataset = first.own.get("InputDataset")
    primary = dataset.split("/")[1] if isinstance(dataset, str) and lexicon.DATASET.allows(dataset) else ""
    if not first.prefix:
        given = document.get("PrimaryDataset")
        if is_set(given) and primary and given != primary:
            findings.problem("PrimaryDataset", f"{shown(given)} differs from {primary}, the input's")
        return primary
    own = [
        (field, value)
        for field, value in (first.value("PrimaryDataset"), ("PrimaryDataset", document.get("PrimaryDataset")))
        if value
    ]
    field, value = own[0] if own else (f"{first.prefix}PrimaryDataset", primary)
    return findings.require(field, value, name(lexicon.PRIMARY), "")


def _of_parts(first: str, views: Sequence[StepView], findings: Findings) -> tuple[str, ...]:
    by_name = {views[0].name: first}
    found = [first]
    for view in views[1:]:
        field, value = view.value("PrimaryDataset")
        read = view.own.get(view.kind.input_field) if view.kind else None
        above = by_name.get(read, first) if isinstance(read, str) else first
        own = findings.read(field, value, name(lexicon.PRIMARY), above) if is_set(value) else above
        by_name[view.name] = own
        found.append(own)
    return tuple(found)
