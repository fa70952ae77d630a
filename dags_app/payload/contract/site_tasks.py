"""``task.json`` and ``result.json`` of a site job: what it is given, and what it answers. Owns both schemas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from .convert import Json, read
from .layout import SITE_RESULT_FILE, SITE_RESULT_SCHEMA, SITE_TASK_FILE, SITE_TASK_SCHEMA
from .reading import load_document


@dataclass(frozen=True)
class Removal:
    """Files to be removed together: by name, and those that the journals in some directories name."""

    key: int
    journals: tuple[str, ...]
    lfns: tuple[str, ...]


@dataclass(frozen=True)
class RemovalTask:
    """What to remove at ``site``: only below ``bases``, nothing that is ``protected``, nothing after ``valid_until``
    (Unix seconds). ``run_seconds``: then the job ends, whatever is left; ``most_problems``: told of one removal."""

    SCHEMA: ClassVar[str] = SITE_TASK_SCHEMA

    job: str
    site: str
    valid_until: float
    run_seconds: float
    most_problems: int
    bases: tuple[str, ...]
    protected: Annotated[frozenset[str], Json(read=lambda value: frozenset(value.texts()), write=sorted)]
    removals: tuple[Removal, ...]


@dataclass(frozen=True)
class Removed:
    """What became of a ``Removal``; without problems nothing is left of it."""

    key: int
    removed: tuple[str, ...]
    problems: tuple[str, ...]
    number_of_problems: int


@dataclass(frozen=True)
class SiteResult:
    """What the job says. Removals that it did not come to are not in it."""

    SCHEMA: ClassVar[str] = SITE_RESULT_SCHEMA

    job: str
    site: str
    host: str
    job_id: str
    started_at: str
    ended_at: str
    removals: tuple[Removed, ...]


def read_task(directory: Path) -> RemovalTask:
    """The task in ``directory``; PayloadError names what is wrong with it."""
    return read(load_document(directory / SITE_TASK_FILE, SITE_TASK_SCHEMA), RemovalTask)


def read_result(directory: Path) -> SiteResult:
    """The result in ``directory``; PayloadError names what is wrong with it."""
    return read(load_document(directory / SITE_RESULT_FILE, SITE_RESULT_SCHEMA), SiteResult)
