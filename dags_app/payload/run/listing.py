"""Files compared with what the storage itself says of them. Nothing is changed there (ADR 0083).

That a file is not there counts only where the storage shows something else beside it: a mount that is away shows nothing at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..contract.codes import PayloadError
from ..contract.site_tasks import Listed, ListedFile, Listing, ListingTask, WrongFile
from . import storage
from .storage import Volume


def listed(task: ListingTask) -> list[Listed]:
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
    """What is wrong with it; None: nothing."""
    size_bytes = storage.size(volume, file.lfn)
    if size_bytes is None and not _shows_something(volume, file.lfn):
        raise OSError(f"{volume.rse} shows nothing at all where {file.lfn} should be: it may be away")
    if size_bytes != file.size_bytes:
        return WrongFile(file.key, size_bytes)
    adler32 = (storage.checksum(volume, file.lfn) or "") if file.whole else file.adler32
    return None if adler32 == file.adler32 else WrongFile(file.key, size_bytes, adler32)


def _shows_something(volume: Volume, lfn: str) -> bool:
    """Whether any of the directories above it holds anything; the topmost is the storage's own."""
    above = lfn.split("/")[1:-1]
    return any(storage.listed(volume, "/" + "/".join(above[:depth])) for depth in range(len(above), 1, -1))
