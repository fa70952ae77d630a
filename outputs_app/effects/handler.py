"""One handler per effect kind: the outside call, then what its success changes in our rows (spec 4.7).

A new kind is declared with ``handles`` in a module of this package that ``__init__`` imports. ``call(effect)`` runs with no
transaction open and returns plain values; ``record(effect, result)`` runs inside the transaction that marks the effect done.
Both may run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from outputs_app.models import Effect, EffectKind, OutputDataset, OutputFile, ProcessingBlock, Validity
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo
from wms2.conf import conf
from wms2.errors import NotFoundInService
from wms2.runtime.parallel import side_by_side

Result = dict[str, Any]
Call = Callable[[Effect], Result]
Record = Callable[[Effect, Result], object]


class Handler(NamedTuple):
    """How one kind of effect is done and recorded."""

    call: Call
    record: Record


#: DBS and Rucio take one name a call for some things: so many connections are used at a time, for no fewer names each.
CONNECTIONS, LEAST_SHARE = 8, 5
#: By kind; every one is declared where its call is.
HANDLERS: dict[str, Handler] = {}
#: Activity of rules where a placement names none.
RULE_ACTIVITY = "Production Output"


def handles(kind: EffectKind, record: Record = lambda effect, result: None) -> Callable[[Call], Call]:
    """Declare the call that does this kind, and what is recorded with its success besides the effect itself."""

    def declared(call: Call) -> Call:
        HANDLERS[kind] = Handler(call, record)
        return call

    return declared


def block_of(effect: Effect) -> ProcessingBlock:
    if effect.block is None:
        raise ValueError(f"effect {effect.key} has no block")
    return effect.block


def dataset_of(effect: Effect) -> OutputDataset:
    return OutputDataset.objects.get(pk=effect.payload["dataset_id"])


def rule_there(rule_id: str) -> RuleInfo | None:
    """None: Rucio says that it is gone."""
    try:
        return factory.rucio().rule(rule_id)
    except NotFoundInService:
        return None


def unit_files(effect: Effect, validity: Collection[str] = (Validity.VALID,)) -> list[OutputFile]:
    """Valid ones, if not said otherwise, of units accounted together; those of earlier releases name one, by their column."""
    units = effect.payload.get("units", [effect.unit_id])
    rows = OutputFile.objects.filter(block=block_of(effect), unit_id__in=units, validity__in=validity)
    return list(rows.order_by("lfn"))


def by_rse(files: Iterable[OutputFile]) -> dict[str, list[OutputFile]]:
    """RSE -> those of the files that are there, RSEs in their order."""
    place = attrgetter("rse")
    return {rse: list(there) for rse, there in groupby(sorted(files, key=place), place)}


def in_parallel(names: Sequence[str], call: Callable[[Sequence[str]], int]) -> int:
    """Make calls that take one name each over several connections at a time; the sum of what they return.

    ``call`` gets a share of the names and touches no database. If one share fails, what the others have done stays done.
    """
    share = max(LEAST_SHARE, -(-len(names) // CONNECTIONS))
    shares = {first: partial(call, names[first : first + share]) for first in range(0, len(names), share)}
    if len(shares) == 1:
        return call(names)
    return sum(done for _, done in side_by_side(shares, lambda: None))


def rule_comment(effect: Effect) -> str:
    return comment_of(effect.request.request_name)


def comment_of(request_name: str) -> str:
    """The comment by which the rules of a request are found again in Rucio: the same for all of them."""
    return comment_prefix() + request_name


def comment_prefix() -> str:
    """How the comments of all rules of this installation begin; the request's name follows."""
    return f"wms2 {conf().instance} "
