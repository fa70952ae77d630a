"""The planner's input file list, ``{"files": [...]}``, as typed values (docs/splitting.md, The planner's formats).

Pydantic at the edge: unknown or wrong fields are named, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dags_app.planning import lumis
from dags_app.planning.specs import InputFileSpec
from requests_app.intake.values import BIGINT_MAX, shown
from wms2.errors import DocumentRefused, Problem

#: CMSSW counts runs and lumis in 32 bits.
_MAX_NUMBER = 2**32 - 1
_MAX_NAMED = 20

_Name = Annotated[str, Field(min_length=1)]

#: What a value must be, where pydantic's own words name no remedy or this module's classes.
_MUST: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is not known; the format has no such field",
    "model_type": "must be a JSON object",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "string_type": "must be text",
    "string_unicode": "must be text that can be stored",
    "string_too_short": "must not be empty",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Lumi(_Strict):
    run: int = Field(ge=1, le=_MAX_NUMBER)
    lumi: int = Field(ge=0, le=_MAX_NUMBER)
    events: int | None = Field(default=None, ge=0, le=BIGINT_MAX)


class _File(_Strict):
    lfn: _Name
    size_bytes: int = Field(ge=0, le=BIGINT_MAX)
    events: int = Field(ge=0, le=BIGINT_MAX)
    lumis: list[_Lumi] = []
    locations: list[_Name] = []
    parents: list[_Name] = []
    block: str = ""


class _Files(_Strict):
    files: list[_File]


def read_files(document: object) -> list[InputFileSpec]:
    """Typed input files out of a parsed JSON document.

    Raises:
        DocumentRefused: naming the first fields that are wrong, each with its value, or the first files listed twice.
    """
    try:
        parsed = _Files.model_validate(document)
    except ValidationError as error:
        raise DocumentRefused(_first_of([_problem(each) for each in error.errors(include_url=False)])) from error
    seen: set[str] = set()
    problems = []
    for number, file in enumerate(parsed.files):
        if file.lfn in seen:
            problems.append(Problem(f"files.{number}.lfn", f"{file.lfn} is listed twice; list each file once"))
        seen.add(file.lfn)
    if problems:
        raise DocumentRefused(_first_of(problems))
    return [_typed(file) for file in parsed.files]


def _problem(error: ErrorDetails) -> Problem:
    where = ".".join(str(part) for part in error["loc"]) or "files"
    bounds = error.get("ctx", {})
    must = _MUST.get(error["type"], error["msg"])
    if error["type"] == "greater_than_equal":
        must = f"must be at least {bounds['ge']}"
    elif error["type"] == "less_than_equal":
        must = f"must be at most {bounds['le']}"
    if error["type"] in ("missing", "extra_forbidden", "string_too_short"):
        return Problem(where, must)
    return Problem(where, f"{must}, not {shown(error['input'])}")


def _first_of(problems: list[Problem]) -> list[Problem]:
    """One mistake of the writer of the file is in every entry: enough of them, and how many more."""
    more = len(problems) - _MAX_NAMED
    return problems[:_MAX_NAMED] + ([Problem("files", f"{more} more problems")] if more > 0 else [])


def _typed(file: _File) -> InputFileSpec:
    return InputFileSpec(
        lfn=file.lfn,
        size_bytes=file.size_bytes,
        events=file.events,
        lumis=lumis.from_pairs((lumi.run, lumi.lumi) for lumi in file.lumis),
        odd_lumis=lumis.odd(((lumi.run, lumi.lumi, lumi.events) for lumi in file.lumis), file.events),
        locations=frozenset(file.locations),
        parents=tuple(file.parents),
        block=file.block,
    )
