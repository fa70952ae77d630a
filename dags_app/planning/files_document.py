"""The planner's input file list, ``{"files": [...]}``, as typed values (``splitting.md``, "The planner's formats").

Pydantic at the edge: unknown or wrong fields are named, nothing is guessed.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dags_app.planning import lumis
from dags_app.planning.specs import InputFileSpec
from wms2.errors import DocumentRefused, Problem


class _Lumi(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    run: int = Field(ge=1)
    lumi: int = Field(ge=0)
    events: int | None = Field(default=None, ge=0)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    lfn: str = Field(min_length=1)
    size_bytes: int = Field(ge=0)
    events: int = Field(ge=0)
    lumis: list[_Lumi] = []
    locations: list[str] = []
    parents: list[str] = []


class _Files(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    files: list[_File]


def read_files(document: object) -> list[InputFileSpec]:
    """Typed input files out of a parsed JSON document.

    Raises:
        DocumentRefused: naming every field that is wrong, and every file listed twice.
    """
    try:
        parsed = _Files.model_validate(document)
    except ValidationError as error:
        raise DocumentRefused(
            [Problem(".".join(str(part) for part in e["loc"]) or "files", e["msg"]) for e in error.errors()]
        ) from error
    seen: set[str] = set()
    problems = []
    for number, file in enumerate(parsed.files):
        if file.lfn in seen:
            problems.append(Problem(f"files.{number}.lfn", f"{file.lfn} is listed twice; list each file once"))
        seen.add(file.lfn)
    if problems:
        raise DocumentRefused(problems)
    return [_typed(file) for file in parsed.files]


def _typed(file: _File) -> InputFileSpec:
    return InputFileSpec(
        lfn=file.lfn,
        size_bytes=file.size_bytes,
        events=file.events,
        lumis=lumis.from_pairs((lumi.run, lumi.lumi) for lumi in file.lumis),
        locations=frozenset(file.locations),
        parents=tuple(file.parents),
    )
