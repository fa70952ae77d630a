"""All our rules in Rucio, checked by a few calls however many there are: those in trouble, those that are gone from blocks
and containers, those that no row knows. Rules on files that are gone are found by the comparison of their dataset (ADR 0019).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from django.db.models import F, Min, Q

from outputs_app.checks.reconciliation.compare import MOST_WORDS, Finding
from outputs_app.checks.reconciliation.rows import blocks_status, requests_busy
from outputs_app.effects.handler import comment_prefix, rule_there
from outputs_app.models import (
    OPEN_DRIFT,
    BlockStatus,
    DatasetState,
    Drift,
    DriftKind,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo, RuleState
from wms2.adapters.wire import Rows

K = DriftKind
#: What rules are counted by, in the metric too.
COUNTED = (*(state.value for state in (RuleState.STUCK, RuleState.SUSPENDED, RuleState.WAITING_APPROVAL)), "unknown", "gone")
#: What the census alone finds, and sees end.
ITS_OWN = (K.RULE_TROUBLE, K.RULE_UNKNOWN)
#: Rules are looked at again in the next census: what was under way then is not any more.
_OVERLAP = timedelta(days=1)
_NAMES_AT_ONCE = 5000


class RuleCheck(NamedTuple):
    """``findings`` are all that stand among the rows of ``seen``; ``rules``: how many, by what is wrong with them; ``problem``:
    what is wrong with rows of Rucio's that cannot be read."""

    findings: Sequence[Finding]
    seen: Q
    rules: Mapping[str, int]
    problem: str


class _Place(NamedTuple):
    """What a rule protects, as our rows have it; ``rules``: those that they know, a block's on tape first."""

    request_id: uuid.UUID | None = None
    dataset_id: int | None = None
    block_id: uuid.UUID | None = None
    rules: tuple[str, ...] = ()

    def finding(self, kind: DriftKind, rule: RuleInfo, expected: str, found: str) -> Finding:
        where = (self.request_id, self.dataset_id, self.block_id)
        return Finding(kind, rule.name, expected, found[:MOST_WORDS], rule.rule_id, *where)


def check_rules(since: str | None) -> RuleCheck:
    """Ask Rucio, then our rows.

    Args:
        since: when the last one began, ISO 8601; None: there was none.

    Raises:
        ServiceError: Rucio does not answer, or refuses.
    """
    rucio = factory.rucio()
    first = Effect.objects.aggregate(first=Min("created_at"))["first"]
    after = datetime.fromisoformat(since) - _OVERLAP if since else first
    listed = [rucio.rules_in_trouble(), rucio.rules_made_since(after) if after else Rows[RuleInfo]([], [], "")]
    trouble, made = (_ours(rows.read) for rows in listed)
    stood = Drift.objects.filter(kind=K.RULE_UNKNOWN, state__in=OPEN_DRIFT)
    unread = {_id(row) for each in listed for row in each.unread} - {""}  # these stand as they do
    stood = stood.exclude(rule_id__in={rule.rule_id for rule in made} | unread)
    made += [rule for rule_id in stood.values_list("rule_id", flat=True) if (rule := rule_there(rule_id)) is not None]
    on_blocks = rucio.rules_on_blocks()
    there = {rule.rule_id for rule in on_blocks.read}
    of_blocks = (("tape_rule_id", "dataset__tape_rse"), ("source_rule_id", "origin_rse"))
    gone = [*chain.from_iterable(_gone(there, *each) for each in of_blocks), *_gone_from_disk(there)]
    busy = requests_busy()  # before our rows: a rule that is recorded by then is known
    places = _places([*trouble, *made])
    troubled = [places[rule.rule_id].finding(K.RULE_TROUBLE, rule, "OK or REPLICATING", _words(rule)) for rule in trouble]
    unknown = []
    for rule in made:
        place = places[rule.rule_id]
        if rule.expires_at is None and rule.rule_id not in place.rules and place.request_id not in busy:
            unknown.append(
                place.finding(K.RULE_UNKNOWN, rule, f"rule {' or '.join(filter(None, place.rules)) or 'none'}", _words(rule))
            )
    numbers = Counter(rule.state.value for rule in trouble) + Counter(unknown=len(unknown), gone=len(gone))
    # one that does not say which it is may be any of those that are not listed
    listed_still = Q(rule_id__in=[rule.rule_id for rule in trouble]) if "" in map(_id, listed[0].unread) else Q()
    at_rest = (Q(kind=K.RULE_UNKNOWN) | Q(kind=K.RULE_GONE, block=None)) & ~Q(request_id__in=busy)
    seen = Q(kind=K.RULE_TROUBLE) & listed_still | at_rest
    # that a block's rule is there again is seen by the comparison of its dataset
    seen |= Q(kind=K.RULE_GONE, rule_id__in=[finding.rule_id for finding in gone])
    problem = "; ".join(filter(None, (*(rows.problem for rows in listed), on_blocks.problem)))
    counts = {name: numbers[name] for name in COUNTED}
    return RuleCheck([*troubled, *unknown, *gone], seen & ~Q(rule_id__in=unread), counts, problem)


def _id(row: object) -> str:
    found = row.get("id") if isinstance(row, dict) else None
    return found if isinstance(found, str) else ""


def _ours(rules: Iterable[RuleInfo]) -> list[RuleInfo]:
    """By their comment: the account may be used by others too."""
    prefix = comment_prefix()
    return [rule for rule in rules if rule.comment.startswith(prefix)]


def _words(rule: RuleInfo) -> str:
    return f"{rule.state} at {rule.rse_expression}" + (f": {rule.error}" if rule.error else "")


def _places(rules: Sequence[RuleInfo]) -> dict[str, _Place]:
    """Rule id -> its place. Read after the rules: what has been recorded since is known."""
    prefix, owner = comment_prefix(), "workflow__request__pk"
    by_name: dict[str, _Place] = {}
    names = sorted({rule.name for rule in rules})
    for start in range(0, len(names), _NAMES_AT_ONCE):
        some = names[start : start + _NAMES_AT_ONCE]
        files = OutputFile.objects.filter(lfn__in=some)
        blocks = ProcessingBlock.objects.filter(dbs_block_name__in=some)
        of_file = ("lfn", f"block__{owner}", "dataset_id", "block_id", "dataset__state", "block__status", "rule_id")
        of_block = ("dbs_block_name", owner, "dataset_id", "pk", "dataset__state", "status", "tape_rule_id", "source_rule_id")
        for name, request_id, dataset_id, block_id, state, status, *known in (
            *files.values_list(*of_file), *blocks.values_list(*of_block),
        ):  # fmt: skip
            # of what was taken back no rule is to be there, even if its row names one
            taken_back = state == DatasetState.INVALIDATED or status == BlockStatus.INVALIDATED
            by_name[name] = _Place(request_id, dataset_id, block_id, () if taken_back else tuple(known))
        # requests of a family write into one dataset, and share its rule on disk
        datasets = OutputDataset.objects.filter(name__in=some).values_list("name", owner, "pk", "disk_rule_id", "state")
        wanted_last = sorted(datasets, key=lambda row: row[-1] != DatasetState.INVALIDATED)  # the rule is reported with that one
        for name, request_id, dataset_id, rule_id, state in wanted_last:
            before = by_name.get(name, _Place()).rules
            known = [] if state == DatasetState.INVALIDATED else [rule_id]
            by_name[name] = _Place(request_id, dataset_id, None, (*before, *known))
    strangers = {rule.comment.removeprefix(prefix) for rule in rules if rule.name not in by_name}
    owners = dict(OutputDataset.objects.filter(workflow__request_id__in=strangers).values_list("workflow__request_id", owner))
    return {rule.rule_id: by_name.get(rule.name) or _Place(owners.get(rule.comment.removeprefix(prefix))) for rule in rules}


def _gone(there: Collection[str], column: str, place: str) -> Iterator[Finding]:
    """Rules on blocks that our rows know and Rucio does not; each is asked for by its id before it is believed."""
    rows = ProcessingBlock.objects.exclude(**{column: ""}).exclude(status=BlockStatus.INVALIDATED)
    missing = {pk: rule_id for pk, rule_id in rows.values_list("pk", column) if rule_id not in there}
    gone = [pk for pk in blocks_status(missing) if rule_there(missing[pk]) is None]
    columns = ("pk", "dbs_block_name", column, place, "workflow__request__pk", "dataset_id")
    for pk, name, rule_id, rse, request_id, dataset_id in rows.filter(pk__in=gone).values_list(*columns):
        if rule_id == missing[pk]:
            yield Finding(K.RULE_GONE, name, f"rule {rule_id} at {rse}", "gone", rule_id, request_id, dataset_id, pk)


def _gone_from_disk(there: Collection[str]) -> Iterator[Finding]:
    """Containers' rules, but for those that were made to end."""
    made = Effect.objects.filter(kind=EffectKind.RUCIO_DISK, state=EffectState.DONE, epoch=F("request__epoch"), payload__days=0)
    rows = OutputDataset.objects.filter(pk__in=list(made.values_list("payload__dataset_id", flat=True))).exclude(disk_rule_id="")
    columns = ("name", "disk_rule_id", "workflow__request__pk", "pk")
    for name, rule_id, request_id, pk in rows.exclude(state=DatasetState.INVALIDATED).values_list(*columns):
        if rule_id not in there and rule_there(rule_id) is None:
            yield Finding(K.RULE_GONE, name, f"rule {rule_id} on disk", "gone", rule_id, request_id, pk)
