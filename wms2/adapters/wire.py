"""Foreign JSON as pydantic models: the services' own spelling stays in here. Unknown keys are ignored, types are not guessed.

``parse`` and ``parse_json`` turn a misfit into ``ServiceUnavailable``: an answer of another shape says nothing. Where the rows
of an answer are of independent things, ``readable`` takes those that can be read; never where a missing row means something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import (
    Any,
    Generic,
    NamedTuple,
    NotRequired,  # pydantic reads no other before Python 3.12
    TypeVar,
)

import structlog
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictStr, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from wms2.errors import ServiceUnavailable
from wms2.metrics.series import ROWS_BROKEN_TOTAL

T = TypeVar("T")
log = structlog.get_logger(__name__)
_MOST_SHOWN = 200
#: What makes values of a shape, built once for each: ``list[BlockInfo]``, a model, a dataclass.
adapter: Callable[[type[T]], TypeAdapter[T]] = cache(TypeAdapter)  # type: ignore[assignment]  # which takes what is hashable


class Wire(BaseModel):
    """Base of all foreign records."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class KeySet(Wire):
    """Public keys of a token issuer; each is judged by itself."""

    keys: list[dict[str, Any]]


def parse(shape: type[T], value: object, *, service: str, operation: str) -> T:
    """A decoded JSON value in its shape. Raises ServiceUnavailable: the value has another shape; says where."""
    try:
        return adapter(shape).validate_python(value)
    except ValidationError as error:
        raise _misfit(error, service, operation) from error


def parse_json(shape: type[T], text: bytes, *, service: str, operation: str) -> T:
    """JSON text in its shape; faster than decoding first. Errors as ``parse``."""
    try:
        return adapter(shape).validate_json(text)
    except ValidationError as error:
        raise _misfit(error, service, operation) from error


class Rows(NamedTuple, Generic[T]):
    """Those that can be read, the others as they came, and what is wrong with the first of these."""

    read: list[T]
    unread: list[Any]
    problem: str


def readable(rows: Iterable[Any], read: Callable[[Any], T], *, service: str, operation: str) -> Rows[T]:
    """Each row by itself; one that cannot be read is logged and counted, and keeps no other from being read."""
    good, bad, problem = list[T](), list[Any](), ""
    for row in rows:
        try:
            good.append(read(row))
        except (ServiceUnavailable, ValueError, TypeError) as error:
            bad.append(row)
            detail = _misfit(error, service, operation).detail if isinstance(error, ValidationError) else str(error)
            problem = problem or detail
    if bad:
        ROWS_BROKEN_TOTAL.labels(f"{service} {operation}").inc(len(bad))
        problem = f"{len(bad)} of {len(bad) + len(good)} rows cannot be read, the others count: {problem}"
        log.warning("rows of an answer cannot be read", service=service, operation=operation, problem=problem)
    return Rows(good, bad, problem)


def _misfit(error: ValidationError, service: str, operation: str) -> ServiceUnavailable:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "answer"
    shown = repr(first["input"])[:_MOST_SHOWN]
    return ServiceUnavailable(service, operation, f"answer has an unexpected shape at {place}: {first['msg']} (got {shown})")


# --- DBS


class DbsErrorBody(Wire):
    """The inner part of a DBS error."""

    reason: str = ""
    message: str = ""
    function: str = ""
    code: int = 0


class DbsErrorRecord(Wire):
    """One element of the list DBS answers an error with."""

    error: DbsErrorBody


class DbsLfnRow(TypedDict):
    """``/files`` without detail."""

    logical_file_name: StrictStr


class DbsFileLumiRow(TypedDict):  # a dict, which is made in a third of the time: there are millions
    """``/filelumis``: one lumi a row; older servers list all lumis of a run in one."""

    logical_file_name: StrictStr
    run_num: int
    lumi_section_num: int | list[int]
    event_count: NotRequired[int | list[int | None] | None]


# --- ReqMgr2


class ReqMgr2Answer(Wire):
    """Everything ReqMgr2 answers: a list under ``result``."""

    result: list[Any]


class ReqMgr2Created(Wire):
    """An element of ``result`` after a creation or a clone."""

    request: StrictStr = Field(min_length=1)


# --- ConfigCache (CouchDB)


class Transfer(Wire):
    """Of input for a request; ``completion``: percent, oldest first."""

    completion: list[float]
    campaign: str = Field(validation_alias="campaignName")


class TransferDocument(Wire):
    """What MSTransferor writes of a request."""

    transfers: list[Transfer]


class Campaign(Wire):
    """A campaign's configuration."""

    partial_copy: float = Field(validation_alias="PartialCopy")


class CouchRows(Wire):
    """What CouchDB answers to ``_all_docs``."""

    rows: list[Any]


class SsbRow(Wire):
    """A site in the Site Status Board."""

    site: str = Field(validation_alias=AliasChoices("name", "site"))
    status: str = Field(validation_alias=AliasChoices("prod_status", "status"))


class CouchError(Wire):
    """CouchDB's error body."""

    error: str


class PsetDataset(Wire):
    """The ``dataset`` PSet of an output module."""

    dataTier: str | None = None
    filterName: str | None = None


class PsetOutputModule(Wire):
    """An output module in ``pset_tweak_details.process``."""

    dataset: PsetDataset | None = None


class ConfigCacheDocument(Wire):
    """A ConfigCache document; the PSet itself is its attachment ``configFile``."""

    pset_hash: str | None = None
    md5_hash: str | None = None
    pset_tweak_details: dict[str, Any]


# --- CRIC


class CricDescription(Wire):
    """Column names of a CRIC preset."""

    columns: list[StrictStr] = Field(min_length=1)


class CricTable(Wire):
    """A CRIC preset: rows of values in the order of ``desc.columns``."""

    desc: CricDescription
    result: list[Any]
