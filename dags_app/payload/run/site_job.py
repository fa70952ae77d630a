"""The ``site`` command: work at a site that is no node of a DAG. ``task.json`` says what; the answer is ``result.json``.

Harvesting is ``harvest``'s; here are the removing of files that are no longer needed (ADR 0010), and the comparing of files with
what the storage itself says of them, where nothing is changed (ADR 0019). Owns what may never be removed, whatever the task says:
anything not named by WMS2 below the directories of the requests concerned, and what is protected. What is protected was true when
the task was written; after ``valid_until`` nothing is removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..contract import codes, files, names
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.layout import SITE_RESULT_FILE, utc_now
from ..contract.site_tasks import (
    HarvestTask,
    Listed,
    ListedFile,
    Listing,
    ListingTask,
    Removal,
    RemovalTask,
    Removed,
    SiteResult,
    WrongFile,
    read_task,
)
from . import credentials, storage
from .harvest import harvest
from .journal import Journals
from .processes import temporary_files_in
from .slot import read_slot
from .storage import Volume

#: What follows the directory of a request's files: the number of units that share one, and a name made of their workflow's.
_FILE = re.compile(rf"/[0-9]{{5,}}/{names.GUID}\.root")
_JOURNALS = re.compile(rf"/[0-9]{{5,}}/{names.GUID}\.(processing|merge)_journals")


def run_site_job(directory: Path, node: str, attempt: int) -> int:
    """Do the task in ``directory`` and write its result; 0, also when something could not be removed: the result says so."""
    slot, begun = read_slot(), utc_now()
    task = read_task(directory)
    if slot.site != task.site:
        raise PayloadError(codes.INVALID_DOCUMENT, f"the task is for {task.site}, this job runs at {slot.site}")
    credentials.check(credentials.wall_seconds() if isinstance(task, HarvestTask) else 0.0)
    result = SiteResult(task.job, slot.site, slot.host, slot.job_id, begun, begun)
    with temporary_files_in(directory / "tmp"):
        if isinstance(task, ListingTask):
            result = replace(result, listings=tuple(_all_listed(task)))
        elif isinstance(task, HarvestTask):
            result = replace(result, uploads=harvest(directory, task))
        else:
            result = replace(result, removals=tuple(_removed(task)))
    files.write_json(directory / SITE_RESULT_FILE, to_json(replace(result, ended_at=utc_now())))
    return 0


def _removed(task: RemovalTask) -> list[Removed]:
    """From every volume that the site's jobs may have written to."""
    volumes = storage.site_volumes(task.site)
    ends_at = min(task.valid_until, time.time() + task.run_seconds)
    done = []
    for removal in task.removals:
        if time.time() >= ends_at:
            break
        problems: list[str] = []
        removed = [lfn for volume in volumes for lfn in _remove_from(volume, task, removal, problems, ends_at)]
        done.append(Removed(removal.key, tuple(dict.fromkeys(removed)), tuple(problems[: task.most_problems]), len(problems)))
    return done


def _remove_from(volume: Volume, task: RemovalTask, removal: Removal, problems: list[str], ends_at: float) -> list[str]:
    """Files first, then the journals that name them: killed in between, another job finds what is left."""
    removed: list[str] = []
    _remove_files(volume, task, removal.lfns, removed, problems, ends_at)
    for lfn in removal.journals:
        if not _is_ours(lfn, task.bases, _JOURNALS):
            problems.append(f"{lfn} is not named like journals of WMS2 here: not touched")
            continue
        before = len(problems)
        try:
            journals = Journals(volume, lfn)
            found = journals.read()
            _remove_files(volume, task, [each for names in found.values() for each in names], removed, problems, ends_at)
            if len(problems) == before:
                journals.remove(found)
        except (OSError, PayloadError) as error:
            problems.append(f"{lfn}: {error}")
    return removed


def _remove_files(
    volume: Volume, task: RemovalTask, lfns: Iterable[str], removed: list[str], problems: list[str], ends_at: float
) -> None:
    for lfn in sorted(set(lfns) - set(removed)):
        if lfn in task.protected:
            continue
        if not _is_ours(lfn, task.bases, _FILE):
            problems.append(f"{lfn} is not named like a file of WMS2 here: not touched")
        elif time.time() >= ends_at:
            problems.append(f"{lfn}: no time was left")
        else:
            try:
                if storage.remove(volume, lfn):
                    removed.append(lfn)
            except (OSError, PayloadError) as error:
                problems.append(f"{lfn}: {error}")


def _is_ours(lfn: str, bases: tuple[str, ...], named: re.Pattern[str]) -> bool:
    """Whether the name is one that WMS2 gives, directly below one of the directories."""
    return any(lfn.startswith(f"{base}/") and named.fullmatch(lfn[len(base) :]) for base in bases)


def _all_listed(task: ListingTask) -> list[Listed]:
    """Listing after listing, as far as the time lasts; the last may be looked at in part."""
    ends_at, volumes = time.time() + task.run_seconds, storage.site_volumes(task.site)
    done = []
    for listing in task.listings:
        if time.time() >= ends_at:
            break
        done.append(_listed(volumes, listing, ends_at))
    return done


def _listed(volumes: Sequence[Volume], listing: Listing, ends_at: float) -> Listed:
    wrong: list[WrongFile] = []
    looked_at = checksums = up_to = 0
    obstacle = ""
    try:
        volume = storage.volume_with(volumes, listing.rse)
        for file in listing.files:
            if time.time() >= ends_at:
                break
            found = _compared(volume, file)
            if found is not None:
                wrong.append(found)
            looked_at, up_to = looked_at + 1, file.key
            checksums += file.whole and (found is None or bool(found.adler32))
    except (OSError, PayloadError) as error:
        obstacle = str(error)
    return Listed(listing.key, looked_at, up_to, checksums, tuple(wrong), obstacle)


def _compared(volume: Volume, file: ListedFile) -> WrongFile | None:
    """What is wrong with it; None: nothing.

    That a file is not there counts only where the storage shows something else beside it: a mount that is away shows nothing.
    """
    size_bytes = storage.size(volume, file.lfn)
    above = file.lfn.split("/")[1:-1]  # the topmost directory is the storage's own
    places = ("/" + "/".join(above[:depth]) for depth in range(len(above), 1, -1))
    if size_bytes is None and not any(storage.listed(volume, place) for place in places):
        raise OSError(f"{volume.rse} shows nothing at all where {file.lfn} should be: it may be away")
    if size_bytes != file.size_bytes:
        return WrongFile(file.key, size_bytes)
    adler32 = (storage.checksum(volume, file.lfn) or "") if file.whole else file.adler32
    return None if adler32 == file.adler32 else WrongFile(file.key, size_bytes, adler32)
