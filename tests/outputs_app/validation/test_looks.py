"""What a look at a block makes of rows alone: no service is asked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from outputs_app.checks.cases import repaired_check
from outputs_app.checks.validation.catalogues import BlockComparison
from outputs_app.effects.validate import _record
from outputs_app.models import (
    BlockStatus,
    BlockValidation,
    CaseAction,
    CaseState,
    EffectKind,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
)
from tests.support.rows import new_block, new_effect

pytestmark = pytest.mark.django_db


def test_what_was_made_from_an_empty_file_of_ours_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier one has a case of its own, unless it was made from nothing, too."""
    first, later = new_block(), new_block()
    parent = OutputFile.objects.get(block=first)
    OutputFile.objects.filter(block=later).update(events=0, parents=[parent.lfn])

    def found() -> list[str]:
        block = ProcessingBlock.objects.select_related("workflow__request", "dataset").get(pk=later.pk)
        return [str(finding.prognosis) for finding in BlockComparison(block, 1, "")._closed(set())]

    assert found() == ["zero_events"]
    OutputFile.objects.filter(pk=parent.pk).update(events=0)
    assert found() == []


def test_a_look_that_does_not_count_leaves_what_an_operator_wants_of_the_next() -> None:
    block = new_block()
    BlockValidation.objects.create(block=block, asked_at=timezone.now(), every_checksum=True)
    effect = new_effect(kind=EffectKind.BLOCK_VALIDATE, block=block, request=block.workflow.request, payload={"generation": 1})
    _record(effect, {"stamp": "of before an effect changed it"})
    row = BlockValidation.objects.get()
    assert (row.generation, row.every_checksum) == (2, True)


def test_what_was_recovered_is_looked_at_although_the_end_of_its_source_rules_waits() -> None:
    """That may wait for tape for weeks, and repairs nothing."""
    block, now = new_block(), timezone.now()
    BlockValidation.objects.create(block=block, asked_at=now - timedelta(hours=1))
    request = block.workflow.request
    new_effect(kind=EffectKind.RUCIO_UNPROTECT, block=block, request=request, next_attempt_at=now + timedelta(days=1))
    IntegrityCase.objects.create(
        request=request, block=block, name=block.dbs_block_name, prognosis=FindingKind.UNPROTECTED, state=CaseState.IN_PROGRESS,
        action=CaseAction.RECOVERED, acted_at=now,
    )  # fmt: skip
    repaired_check(request.pk)
    assert BlockValidation.objects.get().generation == 2


@pytest.mark.parametrize("status", [BlockStatus.INVALIDATED, BlockStatus.GIVEN_UP])
def test_a_case_of_a_block_that_is_never_looked_at_again_ends(status: BlockStatus) -> None:
    """Of a block that was taken back as a whole after the decision, or never registered; nothing else would end it."""
    block, now = new_block(status=status), timezone.now()
    BlockValidation.objects.create(block=block, asked_at=now - timedelta(hours=1))
    case = IntegrityCase.objects.create(
        request=block.workflow.request, block=block, name=block.dbs_block_name, prognosis=FindingKind.UNPROTECTED,
        state=CaseState.IN_PROGRESS, action=CaseAction.RECOVERED, acted_at=now,
    )  # fmt: skip
    repaired_check(case.request_id)
    case.refresh_from_db()
    assert (case.state, case.ended_at is not None) == (CaseState.RESOLVED, True)
