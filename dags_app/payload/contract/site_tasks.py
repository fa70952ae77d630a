"""``task.json`` and ``result.json`` of a site job: what it is given, and what it answers. Owns both schemas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Optional, Union

from . import layout
from .convert import Json, read
from .documents import STAGE_OUT_PAUSES
from .reading import load_document


class Removal(NamedTuple):
    """Files to be removed together: by name, and those that the journals in some directories name."""

    key: int
    journals: tuple[str, ...]
    lfns: tuple[str, ...]


@dataclass(frozen=True)
class RemovalTask:
    """What to remove at ``site``: only below ``bases``, nothing that is ``protected``, nothing after ``valid_until``
    (Unix seconds). ``run_seconds``: then the job ends, whatever is left; ``most_problems``: reported of one removal."""

    SCHEMA: ClassVar[str] = layout.SITE_TASK_SCHEMA

    job: str
    site: str
    valid_until: float
    run_seconds: float
    most_problems: int
    bases: tuple[str, ...]
    protected: Annotated[frozenset[str], Json(read=lambda value: frozenset(value.texts()), write=sorted)]
    removals: tuple[Removal, ...]


class Removed(NamedTuple):
    """What became of a ``Removal``; without problems nothing is left of it."""

    key: int
    removed: tuple[str, ...]
    problems: tuple[str, ...]
    number_of_problems: int


class ListedFile(NamedTuple):
    """A file as it should be; ``whole``: its checksum is asked for too."""

    key: int
    lfn: str
    size_bytes: int
    adler32: str
    whole: bool


class Listing(NamedTuple):
    """Files that should be in one volume, by its name in Rucio, in the order of their keys."""

    key: int
    rse: str
    files: tuple[ListedFile, ...]


@dataclass(frozen=True)
class ListingTask:
    """Files to be compared with what the storage of ``site`` says of them; nothing is changed there (ADR 0019)."""

    SCHEMA: ClassVar[str] = layout.LISTING_TASK_SCHEMA

    job: str
    site: str
    run_seconds: float
    listings: tuple[Listing, ...]


class WrongFile(NamedTuple):
    """A file that is not as it should be. ``size_bytes`` None: the storage has none; ``adler32`` empty: not asked for."""

    key: int
    size_bytes: Optional[int]
    adler32: str = ""


class Listed(NamedTuple):
    """What became of a ``Listing``: ``files`` were looked at, from the first ``up_to`` a key, ``checksums`` of them whole.
    ``obstacle``: why it ended there, if the storage does not answer."""

    key: int
    files: int
    up_to: int
    checksums: int
    wrong: tuple[WrongFile, ...]
    obstacle: str = ""


@dataclass(frozen=True)
class HarvestTask:
    """DQM files of one dataset to be harvested at ``site``, and the servers that the result goes to (ADR 0020).

    ``runs``: the one whose monitoring elements are read, or with ``together`` the first and the last of all.
    ``upload_pauses_seconds``: before each further try of an upload.
    """

    SCHEMA: ClassVar[str] = layout.HARVEST_TASK_SCHEMA

    job: str
    site: str
    dataset: str
    together: bool
    runs: tuple[int, ...]
    files: tuple[str, ...]
    pset: str
    release: str
    scram_arch: tuple[str, ...]
    global_tag: str
    upload_urls: tuple[str, ...]
    upload_pauses_seconds: tuple[float, ...] = STAGE_OUT_PAUSES


class Uploaded(NamedTuple):
    """A file that a DQM server has taken, and the words in which it said so."""

    name: str
    size_bytes: int
    md5: str
    url: str
    answer: str


@dataclass(frozen=True)
class SiteResult:
    """What the job says. Removals and listings that it did not come to are not in it."""

    SCHEMA: ClassVar[str] = layout.SITE_RESULT_SCHEMA

    job: str
    site: str
    host: str
    job_id: str
    started_at: str
    ended_at: str
    removals: tuple[Removed, ...] = ()
    listings: tuple[Listed, ...] = ()
    uploads: tuple[Uploaded, ...] = ()


_KINDS: dict[str, Any] = {each.SCHEMA: each for each in (RemovalTask, ListingTask, HarvestTask)}


def read_task(directory: Path) -> Union[RemovalTask, ListingTask, HarvestTask]:
    """The task in ``directory``, of the kind that its schema names; PayloadError names what is wrong with it."""
    document = load_document(directory / layout.SITE_TASK_FILE, *_KINDS)
    found = document["schema"].text()
    kind = next(kind for schema, kind in _KINDS.items() if found.startswith(schema))
    task: Union[RemovalTask, ListingTask, HarvestTask] = read(document, kind)
    return task


def read_result(directory: Path) -> SiteResult:
    """The result in ``directory``; PayloadError names what is wrong with it."""
    return read(load_document(directory / layout.SITE_RESULT_FILE, layout.SITE_RESULT_SCHEMA), SiteResult)
