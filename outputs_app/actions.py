"""Operations on effects, on output datasets and where they go, on differences from DBS and Rucio, and on integrity cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from outputs_app.blocks.placements import FIELDS, placement_remove, placement_set, placements_idle, remove_refused
from outputs_app.checks.cases import case_decide, cases_shown, decided_refused, register_refused
from outputs_app.checks.reconciliation.remedies import REMEDIES
from outputs_app.checks.reconciliation.services import accept_refused, dataset_compare, drift_accept, drift_repair, repair_refused
from outputs_app.models import (
    CaseAction,
    Drift,
    DriftKind,
    Effect,
    EffectKind,
    EffectState,
    IntegrityCase,
    OutputDataset,
    Placement,
)
from outputs_app.selectors import datasets_shown, drift_shown, effects_shown
from outputs_app.services import (
    effect_discard,
    effect_discard_refused,
    effect_retry_now,
    effect_retry_refused,
    effects_discarded_with,
    gives_block_up,
)
from wms2.actions import Action, Field, Kind, ResourceType, declare, preview_each
from wms2.web.formatting import counted

#: How "compare now" goes, for a dataset and for a request.
COMPARED = "It begins within a minute or so and goes in portions; what differs is listed, and nothing is changed outside."


def _retry(effect: Effect) -> list[str]:
    last = [f"Last error: {effect.last_error}"] if effect.last_error else []
    if effect.state == EffectState.CLAIMED:
        return ["It runs just now and goes on.", *last]
    tried = f"after {counted(effect.attempts, 'attempt')}" if effect.attempts else "for the first time"
    return [f"{effect.get_kind_display()}: tried again at once, {tried}; its time for retries starts anew.", *last]


#: What stays so where one of these is discarded, and nothing else with it.
_LOST: Mapping[str, str] = {
    EffectKind.RUCIO_TAPE: "Its block is archived without a tape rule, and says so; its source rules stay.",
    EffectKind.RUCIO_PROTECT: "Its files have no rule at their source: nothing keeps them there until they are on tape.",
    EffectKind.DBS_VALID: "Its dataset stays PRODUCTION in DBS.",
    EffectKind.DBS_INVALIDATE:
        "What DBS has as valid of its dataset stays so; the rules that keep it are deleted all the same.",
}  # fmt: skip


def _discard(effect: Effect) -> list[str]:
    """What is lost by it, in words."""
    lines = [f"{effect.get_kind_display()}: never run. The request does not wait for it."]
    if effect.attempts:
        lines.append("It was tried before, and may have been done all the same: look outside.")
    block = effect.block
    others = effects_discarded_with(effect).exclude(pk=effect.pk).count()
    if block is not None and gives_block_up(effect):
        lines += [
            f"Block {block.dbs_block_name} is given up, with {counted(others, 'other effect')} that it is owed: its"
            f" {counted(block.files.count(), 'file')} are registered and protected no further; what is outside stays as it is."
            " What work units bring later goes to another block.",
            "Blocks with children of its files are refused by DBS, unless it has them already.",
        ]
    elif others:
        lines.append(f"So are {counted(others, 'other effect')} that its block is owed; the block stays archived.")
    elif what := _LOST.get(effect.kind):
        lines.append(what)
    return lines


declare(
    ResourceType(
        Effect, "effect", "effect", lambda key: effects_shown().filter(pk=key),
        lambda effect: (effect.state, effect.get_state_display()), "effects/<int:pk>",
    ),
    Action(
        "retry", "Retry now",
        "Try a registration again now. Revives a refused or dead effect, and makes a waiting one due.",
        effect_retry_now, preview_each(_retry), refused=effect_retry_refused, path="retry",
    ),
    Action(
        "discard", "Discard",
        "Give a registration up: it never runs, and its request does not wait for it. Without what its block rests on, the"
        " whole block is given up.",
        effect_discard, preview_each(_discard), refused=effect_discard_refused, path="discard", dangerous=True,
    ),
)  # fmt: skip

_DECISION = (
    Field("tape", Kind.FLAG, "whether blocks get a tape rule; left out: none", blank=False),
    Field("disk_expression", help="RSEs for the container's rule on disk; empty: others place it", length=500, blank=""),
    Field("disk_copies", Kind.WHOLE, "copies on disk", least=1, most=20),
    Field("disk_days", Kind.WHOLE, "how long that rule lives; 0: for ever", least=0, most=36_500),
    Field("disk_activity", help="Rucio's activity; empty: as of the other rules", length=100, blank=""),
)
_WHICH = (
    Field("campaign", help="whose outputs; empty: any campaign's", length=100, blank=""),
    Field("tier", help="of which tier; empty: any", length=50, blank=""),
)


def _values(row: Placement) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in (*FIELDS, "campaign", "tier")}


def _change(row: Placement, actor: str, reason: str, **values: Any) -> None:
    placement_set(row=row, campaign=row.campaign, tier=row.tier, actor=actor, reason=reason, **values)


_HOLDS = "It holds for blocks that become complete from now on, and for containers without a rule."
_THEN = preview_each(lambda row: [*filter(None, [placements_idle()]), _HOLDS])
declare(
    ResourceType(
        Placement, "placement", "row", lambda key: Placement.objects.filter(pk=key),
        lambda row: (row.updated_at.isoformat(), str(row)), "placements/<int:pk>",
    ),
    Action(
        "change", "Change", "Change where these outputs go.", _change, _THEN, _DECISION, initial=_values, path="change",
        single=True, inverse="change",
    ),
    Action(
        "copy", "Add one like it", "Decide for another campaign or tier, with the values below.", placement_set, _THEN,
        (*_WHICH, *_DECISION), initial=_values, path="copy", single=True, inverse="remove",
    ),
    Action(
        "remove", "Remove", "Take the decision away.", placement_remove, _THEN, refused=remove_refused, path="remove",
        inverse="copy",
    ),
)  # fmt: skip

declare(
    ResourceType(
        OutputDataset, "dataset", "dataset", lambda name: datasets_shown().filter(name=name),
        lambda dataset: (dataset.state, dataset.get_state_display()), "datasets/<int:pk>",
    ),
    Action(
        "compare", "Compare now",
        f"Compare an output dataset with what DBS and Rucio hold of it now. {COMPARED}", dataset_compare, path="compare",
    ),
)  # fmt: skip


def _repair(drift: Drift) -> list[str]:
    again = [kind.label.lower() for kind in REMEDIES[DriftKind(drift.kind)].again]
    return [*_accept(drift, ""), f"Made again, as far as it is of this: {'; '.join(again)}."]


def _accept(drift: Drift, then: str = " It may stay so.") -> list[str]:
    return [f"Expected: {drift.expected}. Found: {drift.found}.{then}", REMEDIES[DriftKind(drift.kind)].todo]


declare(
    ResourceType(
        Drift, "drift", "drift", lambda key: drift_shown().filter(pk=key),
        lambda drift: (f"{drift.state} {drift.found}", drift.get_state_display()), "drift/<int:pk>",
    ),
    Action(
        "repair", "Repair",
        "Have the registrations made again that should have brought what is expected. Nothing is deleted outside. A later"
        " comparison says whether it helped.",
        drift_repair, preview_each(_repair), refused=repair_refused, path="repair",
    ),
    Action(
        "accept", "Accept", "Accept a difference for the reason given. It is open again if it changes.", drift_accept,
        preview_each(_accept), refused=accept_refused, path="accept",
    ),
)  # fmt: skip


def _decision(
    name: str, label: str, action: CaseAction, does: str, then: str, refused: Callable[[IntegrityCase], str] = decided_refused
) -> Action:
    def preview(case: IntegrityCase) -> list[str]:
        found = [f"{one.get('expected') or 'right'} expected, {one.get('found')} found." for one in case.findings]
        return [f"{case.get_prognosis_display()}: {' '.join(found)}", then]

    return Action(name, label, does, partial(case_decide, action=action), preview_each(preview), refused=refused, path=name)


_AGAIN = "Its block is validated again: the case ends if nothing is found, else it waits for you again."

declare(
    ResourceType(
        IntegrityCase, "case", "case", lambda key: cases_shown().filter(pk=key),
        lambda case: (f"{case.state} {case.prognosis}", case.get_state_display()), "cases/<int:pk>",
    ),
    _decision(
        "recovered", "Recovered", CaseAction.RECOVERED,
        "Say that a file is whole again at its storage. Its block is validated again.", _AGAIN,
    ),
    _decision(
        "register", "Register again", CaseAction.REGISTERED,
        "Have made again what should have brought what is missing: replicas, rules, a whole block. Then its block is validated"
        " again.",
        _AGAIN, register_refused,
    ),
    _decision(
        "accept", "Accept", CaseAction.ACCEPTED,
        "Accept a file as it is, for the reason given. The same finding opens no further case.",
        "It stays valid as it is, and counts as right.",
    ),
)  # fmt: skip
