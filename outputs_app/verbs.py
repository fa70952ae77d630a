"""Verbs on effects, on output datasets, and on differences from DBS and Rucio."""

from __future__ import annotations

from outputs_app.models import Drift, DriftKind, Effect, EffectState, OutputDataset
from outputs_app.reconciliation.remedies import REMEDIES
from outputs_app.reconciliation.services import accept_refused, dataset_compare, drift_accept, drift_repair, repair_refused
from outputs_app.selectors import datasets_shown, drift_shown, effects_shown
from outputs_app.services import effect_retry_now, effect_retry_refused
from wms2.verbs import Noun, Verb, declare, told_of_each
from wms2.words import counted

#: What "compare now" does, for a dataset and for a request.
COMPARED = "Compared with DBS and Rucio within a minute or so, in portions. Nothing is changed there."


def _retry(effect: Effect) -> list[str]:
    last = [f"Last error: {effect.last_error}"] if effect.last_error else []
    if effect.state == EffectState.CLAIMED:
        return ["It runs just now and goes on.", *last]
    tried = f"after {counted(effect.attempts, 'attempt')}" if effect.attempts else "for the first time"
    return [f"{effect.get_kind_display()}: tried again at once, {tried}; its time for retries starts anew.", *last]


declare(
    Noun(
        Effect, "effect", "effect", lambda key: effects_shown().filter(pk=key),
        lambda effect: (effect.state, effect.get_state_display()), "effects/<int:pk>",
    ),
    Verb(
        "retry", "Retry now",
        "Try a registration again now. Revives a refused or dead effect, and makes a waiting one due.",
        effect_retry_now, told_of_each(_retry), refused=effect_retry_refused, path="retry",
    ),
)  # fmt: skip

declare(
    Noun(
        OutputDataset, "dataset", "dataset", lambda name: datasets_shown().filter(name=name),
        lambda dataset: (dataset.state, dataset.get_state_display()), "datasets/<int:pk>",
    ),
    Verb(
        "compare", "Compare now",
        "Compare an output dataset with what DBS and Rucio hold of it now. What differs is listed; nothing is changed outside.",
        dataset_compare, told_of_each(lambda dataset: [COMPARED]), path="compare",
    ),
)  # fmt: skip


def _repair(drift: Drift) -> list[str]:
    again = [kind.label.lower() for kind in REMEDIES[DriftKind(drift.kind)].again]
    return [
        f"Expected: {drift.expected}. Found: {drift.found}.",
        _todo(drift),
        f"Made again, as far as it is of this: {'; '.join(again)}.",
    ]


def _todo(drift: Drift) -> str:
    return REMEDIES[DriftKind(drift.kind)].todo


declare(
    Noun(
        Drift, "drift", "drift", lambda key: drift_shown().filter(pk=key),
        lambda drift: (f"{drift.state} {drift.found}", drift.get_state_display()), "drift/<int:pk>",
    ),
    Verb(
        "repair", "Repair",
        "Have the registrations made again that should have brought what is expected. Nothing is deleted outside. A later"
        " comparison says whether it helped.",
        drift_repair, told_of_each(_repair), refused=repair_refused, path="repair",
    ),
    Verb(
        "accept", "Accept", "Accept a difference for the reason given. It is open again if it changes.", drift_accept,
        told_of_each(lambda drift: [f"Expected: {drift.expected}. Found: {drift.found}. It may stay so.", _todo(drift)]),
        refused=accept_refused, path="accept",
    ),
)  # fmt: skip
