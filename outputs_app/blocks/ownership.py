"""Who may write into which dataset, and how lumis are numbered in one that a family shares (ADR 0017).

A request owns its dataset names from the moment they are known until it has ended and none of its files in them is valid. Rows
only, in the caller's transaction; a name's row is locked before its owners are looked at, names in their order.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Max

from outputs_app.models import DatasetOwner, OutputFile, OwnedDataset, Validity
from wms2.errors import DocumentRefused, Problem, StaleState
from wms2.runtime.sql import sql_rows

Lumis = Mapping[str, Iterable[tuple[int, int | None]]]


def names_claim(*, request_id: uuid.UUID, family: uuid.UUID, names: Iterable[str]) -> None:
    """Make the request an owner of these names; what it owns already stays its own.

    Raises:
        DocumentRefused: a name belongs to another family; says to whom, and what to do.
    """
    wanted = sorted(set(names))
    OwnedDataset.objects.bulk_create([OwnedDataset(name=name, family=family) for name in wanted], ignore_conflicts=True)
    rows = names_lock(wanted)
    names_refuse(family=family, names=wanted)
    for row in rows:
        if row.family != family:  # without an owner by now: numbers begin anew
            OwnedDataset.objects.filter(pk=row.pk).update(family=family, next_lumi=1)
    DatasetOwner.objects.bulk_create(
        [DatasetOwner(dataset=row, family=family, request_id=request_id) for row in rows], ignore_conflicts=True
    )


def names_refuse(*, family: uuid.UUID | None, names: Iterable[str]) -> None:
    """Look only.

    Raises:
        DocumentRefused: a name belongs to another family than this one.
    """
    strangers = DatasetOwner.objects.filter(dataset__name__in=set(names)).select_related("dataset", "request")
    if family is not None:
        strangers = strangers.exclude(family=family)
    first = strangers.order_by("dataset__name", "id").distinct("dataset__name")
    if problems := [Problem("OutputDatasets", _refusal(row)) for row in first]:
        raise DocumentRefused(problems)


def _refusal(row: DatasetOwner) -> str:
    valid = _valid_files(row.request_id, row.dataset.name)
    also = f" and has {valid} valid file{'s' if valid != 1 else ''} in it" if valid else ""
    return (
        f"{row.dataset.name} belongs to {row.request.request_name}, which is {row.request.get_status_display()}{also}; give this "
        "request another ProcessingVersion or ProcessingString, or end that one and have its outputs invalidated, or declare "
        f"with family_of that both belong together (a recovery of {row.request.request_name}, for example)"
    )


def _valid_files(request_id: uuid.UUID, name: str) -> int:
    rows = OutputFile.objects.filter(dataset__workflow__request__pk=request_id, dataset__name=name, validity=Validity.VALID)
    return rows.count()


def names_release(*, request_id: uuid.UUID, names: Iterable[str] | None = None) -> None:
    """The request writes no more: it keeps the names in which it has valid files. Only ``names``, if given."""
    _locked(request_id)  # of two that end at once, the second sees that the first has gone
    rows = DatasetOwner.objects.filter(request_id=request_id).select_related("dataset")
    if names is not None:
        rows = rows.filter(dataset__name__in=set(names))
    over = [row.pk for row in rows if not _valid_files(request_id, row.dataset.name)]
    DatasetOwner.objects.filter(pk__in=over).delete()


def other_owners(*, request_id: uuid.UUID, name: str) -> list[str]:
    """Other requests that own the name: they write into it, or have valid files in it."""
    rows = DatasetOwner.objects.filter(dataset__name=name).exclude(request_id=request_id).order_by("id")
    return list(rows.values_list("request__request_name", flat=True))


# --- numbers


def lumi_next(*, request_id: uuid.UUID) -> int:
    """The first lumi that no request has taken in any dataset that this one writes."""
    rows = OwnedDataset.objects.filter(owners__request_id=request_id)
    return rows.aggregate(most=Max("next_lumi"))["most"] or 1


def lumis_take(*, request_id: uuid.UUID, first: int, after: int) -> None:
    """Take the lumis from ``first`` up to, without, ``after`` in every dataset that the request writes.

    Raises:
        StaleState: another of its family has taken some of them since they were planned.
    """
    rows = _locked(request_id)
    taken = [row.name for row in rows if row.next_lumi > first]
    if taken:
        raise StaleState(f"lumis from {first} on are taken in {taken[0]} by another request of the family by now")
    OwnedDataset.objects.filter(pk__in=[row.pk for row in rows]).update(next_lumi=after)


def lumis_give_back(*, request_id: uuid.UUID, first: int, after: int) -> None:
    """Return lumis that were certainly not used; only where they are the newest."""
    rows = _locked(request_id)
    OwnedDataset.objects.filter(pk__in=[row.pk for row in rows], next_lumi=after).update(next_lumi=first)


def _locked(request_id: uuid.UUID) -> list[OwnedDataset]:
    return names_lock(list(DatasetOwner.objects.filter(request_id=request_id).values_list("dataset__name", flat=True)))


def names_lock(names: Collection[str]) -> list[OwnedDataset]:
    """In their order: two of a family that account in datasets of both do it one after the other."""
    return list(OwnedDataset.objects.select_for_update().filter(name__in=names).order_by("name"))


#: The dataset may have 100,000 files: what they hold is compared where they are.
_TWICE = """
SELECT file.lfn, workflow.request_name, (array_agg(held.run ORDER BY held.run, held.lumi))[1],
  (array_agg(held.lumi ORDER BY held.run, held.lumi))[1], count(*)
FROM output_datasets dataset JOIN output_files file ON file.dataset_id = dataset.id
JOIN workflows workflow ON workflow.id = dataset.workflow_id
CROSS JOIN LATERAL (
  SELECT run, (pair ->> 0)::bigint AS lumi FROM jsonb_each(file.lumis) of_run(run, pairs), jsonb_array_elements(pairs) pair
) held
JOIN unnest(%(runs)s::text[], %(lumis)s::bigint[]) AS new(run, lumi) ON new.run = held.run AND new.lumi = held.lumi
WHERE dataset.name = %(name)s AND dataset.id <> %(dataset)s AND file.validity = %(valid)s AND file.lumis ?| %(each_run)s
GROUP BY file.id, workflow.request_name ORDER BY file.id LIMIT 1
"""


def lumis_twice(*, dataset_id: int, name: str, lumis: Sequence[Lumis]) -> str:
    """Which lumi of new files a valid file of another request has in the same dataset already; empty: none.

    Lumis are split over files within one request, so its own are not compared. For shared datasets, locked by ``names_lock``.
    """
    new = {(run, lumi) for file in lumis for run, pairs in file.items() for lumi, _ in pairs}
    values: dict[str, Any] = {
        "dataset": dataset_id, "name": name, "valid": Validity.VALID, "each_run": sorted({run for run, _ in new}),
        "runs": [run for run, _ in new], "lumis": [lumi for _, lumi in new],
    }  # fmt: skip
    if not (twice := sql_rows(_TWICE, values)):
        return ""
    lfn, owner, run, lumi, count = twice[0]
    return (
        f"{name}: {run}:{lumi} is valid already in {lfn} of {owner}; {count} lumis of that file would be"
        " there twice: invalidate the outputs of one of the two requests, or abort this one"
    )
