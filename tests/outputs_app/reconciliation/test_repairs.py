"""Repairs that would tell DBS or Rucio what is not so are refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from outputs_app.checks.reconciliation.services import drift_accept, repair_refused
from outputs_app.models import BlockStatus, Drift, DriftKind, DriftState, Effect, EffectKind, EffectState, Validity
from tests.support.rows import new_block
from wms2.errors import StaleState
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
K = DriftKind


@pytest.mark.parametrize(
    ("kind", "again", "changes", "why"),
    [
        (K.RUCIO_BLOCK_MISSING, EffectKind.RUCIO_FILES, {"rule_id": ""}, "No rule of ours says any more where its files lie."),
        (K.RUCIO_BLOCK_MISSING, EffectKind.RUCIO_FILES, {"rule_id": "", "validity": Validity.INVALID}, ""),
        (K.RUCIO_BLOCK_MISSING, EffectKind.RUCIO_FILES, {}, ""),
        (K.RUCIO_BLOCK_MISSING, EffectKind.RUCIO_FILES, {"rule_id": "", "source": "of the block"}, ""),
        (K.DBS_BLOCK_MISSING, EffectKind.DBS_BLOCK, {"validity": Validity.INVALID}, "Files of it were taken back"),
        (K.DBS_BLOCK_MISSING, EffectKind.DBS_BLOCK, {"rule_id": ""}, ""),
    ],
)
def test_a_block_is_made_again_only_as_it_is_now(kind: DriftKind, again: EffectKind, changes: dict[str, str], why: str) -> None:
    block = new_block(units=2, done=2, status=BlockStatus.ARCHIVED, tape_rule_id="tape", sealed_at=timezone.now())
    block.files.update(rule_id="rule")
    first = block.files.order_by("id")[:1].values("pk")
    type(block).objects.filter(pk=block.pk).update(source_rule_id=changes.get("source", ""))
    block.files.filter(pk__in=first).update(**{name: value for name, value in changes.items() if name != "source"})
    block.refresh_from_db()
    request, now = block.workflow.request, timezone.now()
    Effect.objects.create(request=request, epoch=request.epoch, block=block, kind=again, key="again", state=EffectState.DONE)
    drift = Drift.objects.create(
        kind=kind, name=block.dbs_block_name, request=request, dataset=block.dataset, block=block, expected="it", found="none",
        since=now, last_seen=now,
    )  # fmt: skip
    reported = repair_refused(drift)
    assert reported.startswith(why) and bool(reported) is bool(why)


@pytest.mark.parametrize("meanwhile", [{"state": DriftState.GONE, "ended_at": timezone.now()}, {"found": "another"}])
def test_what_a_comparison_has_changed_since_it_was_read_is_not_accepted(meanwhile: dict[str, Any]) -> None:
    now = timezone.now()
    drift = Drift.objects.create(kind=K.DBS_FILE_INVALID, name="/a", expected="valid", found="invalid", since=now, last_seen=now)
    Drift.objects.update(**meanwhile)
    with pytest.raises(StaleState):
        drift_accept(drift=drift, actor="ann", reason="known")
    assert Drift.objects.filter(**meanwhile).exclude(state=DriftState.ACCEPTED).exists()
    assert AuditEntry.objects.get().outcome == "refused"
