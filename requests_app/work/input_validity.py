"""Whether input may be read, as DBS says now: asked around each reading, and again before each round is planned (spec 4.3).

Rows say what was VALID when it was read. A file that is INVALID since, or gone, is excluded by name and counts as left out; a
dataset that is not live any more holds the request. What is planned or done already is the business of validation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import structlog

from dags_app.planning.plan import LeftOut
from dags_app.planning.specs import ExcludedFile, ExclusionKind, WorkflowSpec
from requests_app.feed import emit_event
from requests_app.models import Request, Workflow
from requests_app.work.ledger import files_with_work
from requests_app.work.remaining import record_left_out
from wms2.adapters import factory
from wms2.adapters.types import DbsFileInfo
from wms2.errors import PlanningRefused, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted

T = TypeVar("T")
log = structlog.get_logger(__name__)
#: A block whose valid files are others after it was read is read again, so often at a time.
_TRIES = 3
_NAMED = 5
_INVALID = "INVALID in DBS"


def dataset_unusable(name: str) -> str:
    """Why no file of the dataset may be read, in words; empty if they may."""
    known = factory.dbs().dataset(name)
    if known is None:
        return f"{name} is not in DBS"
    return "" if known.is_live else f"{name} is {known.access_type} in DBS"


def read_steadily(
    block_name: str, read: Callable[[list[DbsFileInfo]], T], is_short: Callable[[T], bool] = lambda made: False
) -> T:
    """What ``read`` makes of the block's valid files, which are the same before and after it.

    Args:
        is_short: whether an answer may have lacked a part of what it is made of: then another one must be the same.

    Raises:
        ServiceUnavailable: they keep changing.
    """
    files, former = _files(block_name), None
    for _ in range(_TRIES):
        valid = [file for file in files.values() if file.is_valid]
        made, names = read(valid), {file.lfn for file in valid}
        if names == _valid_names(block_name) and not is_short(made):
            return made
        files = _files(block_name)
        unchanged = names == {lfn for lfn, file in files.items() if file.is_valid}
        if unchanged and (made == former or not is_short(made)):
            return made
        former = made
    raise _changing(block_name)


def _changing(block_name: str) -> ServiceUnavailable:
    return ServiceUnavailable("dbs", "files", f"the valid files of {block_name} change while they are read")


def _files(block_name: str) -> dict[str, DbsFileInfo]:
    """By name, INVALID ones too, of any access type of their dataset: that is asked for itself."""
    return {file.lfn: file for file in factory.dbs().files(block_name, valid_only=False)}


def _valid_names(block_name: str) -> set[str]:
    """Names alone, which cost a fraction of rows; none of a dataset that is not live. Where they are others, rows decide."""
    return set(factory.dbs().valid_lfns(block_name, "files"))


def blocks_short(valid: Mapping[str, int], counts: Mapping[str, int]) -> str:
    """Blocks that have fewer valid files than DBS counts in them, by name, in words; empty without any."""
    short = [f"{name} ({valid.get(name, 0)} of {count})" for name, count in sorted(counts.items()) if valid.get(name, 0) < count]
    if not short:
        return ""
    more = f" and {len(short) - _NAMED} more" if len(short) > _NAMED else ""
    return f"fewer files are valid than DBS counts in {counted(len(short), 'block')}: {', '.join(short[:_NAMED])}{more}"


def validity_refresh(*, workflow: Workflow, spec: WorkflowSpec, fenced: Fenced) -> bool:
    """Exclude files that are left to be read and are not valid in DBS any more; whether there are any.

    Raises:
        PlanningRefused: the dataset is not live.
        ServiceUnavailable: DBS did not answer, or not twice the same; nothing was changed.
    """
    if spec.input is None:
        return False
    _refuse_unusable(spec.input.dataset)
    gone: dict[str, str] = {}
    parents: dict[str, Sequence[str]] = {}
    blocks = defaultdict[str, dict[str, Sequence[str]]](dict)
    fields = ("block_name", "lfn", "parents") if spec.input.include_parents else ("block_name", "lfn")
    for block, lfn, *of_it in files_with_work(workflow, spec, fields):
        blocks[block][lfn] = of_it[0] if of_it else ()
    for block, of in blocks.items():
        if not of.keys() <= _valid_names(block):
            gone |= _gone(block, of)
        parents |= {lfn: each for lfn, each in of.items() if each and lfn not in gone}
    _refuse_unusable(spec.input.dataset)
    without = _not_valid({parent for each in parents.values() for parent in each})
    for lfn, each in parents.items():
        if bad := next((parent for parent in each if parent in without), None):
            gone[lfn] = f"its parent {bad}: {without[bad]}"
    if not gone:
        return False
    found_at = f"{clock.now():%Y-%m-%d %H:%M} UTC"
    files = [ExcludedFile(lfn, f"{why}, found on {found_at}", ExclusionKind.LOST) for lfn, why in sorted(gone.items())]
    with fenced():
        record_left_out(workflow, spec, LeftOut(files=files))
        first = files[0]
        what = f"{spec.input.dataset}: {counted(len(files), 'file')} left out, which DBS had as valid before, e.g. {first.lfn}"
        request_warn(workflow, f"{what}: {first.reason}")
        emit_event(
            "input.excluded", workflow.request, files=[file.lfn for file in files[:50]], number=len(files), why=first.reason
        )
    log.warning("input files not valid any more", request_name=workflow.request_id, files=len(files), first=files[0].lfn)
    return True


def _gone(block_name: str, lfns: Iterable[str]) -> dict[str, str]:
    """Those of the block's files that are not valid, with words. Raises ServiceUnavailable: DBS does not say the same twice."""
    there = _files(block_name)
    lost = [lfn for lfn in lfns if lfn not in there or not there[lfn].is_valid]
    if lost and _files(block_name) != there:
        raise _changing(block_name)
    return {lfn: _INVALID if lfn in there else "not in DBS any more" for lfn in lost}


def _not_valid(lfns: set[str]) -> dict[str, str]:
    """Those of the files that DBS has as INVALID, or in a dataset that is not live, with words: asked dataset by dataset, since
    only their names are known. Of what DBS does not know nothing is said."""
    dbs, found, left = factory.dbs(), dict[str, str](), set(lfns)
    judged: dict[str, set[str]] = {}
    while left:
        first = min(left)
        known = next(iter(dbs.known_as(first, "parents")), None)
        dataset = known.block_name.partition("#")[0] if known is not None else ""
        if dataset and dataset not in judged:
            if why := dataset_unusable(dataset):
                there = {file.lfn for file in dbs.files(dataset, valid_only=False) if file.lfn in left}
                found |= dict.fromkeys(there, why)
                judged[dataset] = there
            else:
                judged[dataset] = {lfn for lfn in dbs.valid_lfns(dataset, "parents") if lfn in left}
            left -= judged[dataset]
        if known is not None and not known.is_valid:
            found.setdefault(first, _INVALID)
        left.discard(first)
    return found


def _refuse_unusable(dataset: str) -> None:
    if why := dataset_unusable(dataset):
        raise PlanningRefused(f"input dataset {why}; make it VALID there and release, or abort the request")


def request_warn(workflow: Workflow, warning: str, *, instead_of: str = "") -> None:
    """Once on the request, in the place of one that begins with ``instead_of``; in the caller's transaction."""
    request = Request.objects.only("warnings").get(pk=workflow.request.pk)
    kept = [text for text in request.warnings if not (instead_of and text.startswith(instead_of))]
    if warning not in request.warnings:
        Request.objects.filter(pk=request.pk).update(warnings=[*kept, warning])
