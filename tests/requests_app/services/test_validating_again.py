"""Blocks are validated again on demand, one or all of a request, with every checksum if wanted."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from outputs_app.checks.validation import validation_again
from outputs_app.models import BlockStatus, BlockValidation, Effect, EffectKind, ProcessingBlock
from requests_app.lifecycle.storage_checks import storage_checks_run
from requests_app.models import Request, RequestStatus
from requests_app.services import request_validate
from tests.support.problems import problem
from tests.support.rest_clients import operator
from tests.support.rows import new_block, new_effect
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
__all__ = ["operator"]
BY: dict[str, Any] = {"actor": "ann", "reason": "the site has found damage"}


@pytest.fixture(name="block")
def _block() -> ProcessingBlock:
    """Validated, of a request that is completed."""
    block = new_block(units=2, done=2, status=BlockStatus.ARCHIVED, no_tape="test", sealed_at=timezone.now())
    now = timezone.now()
    BlockValidation.objects.create(block=block, asked_at=now, catalogues_at=now, validated_at=now, evidence={"dbs": {}})
    Request.objects.update(status=RequestStatus.COMPLETED)
    block.refresh_from_db()
    return block


def test_all_blocks_of_a_request_are_looked_at_anew(block: ProcessingBlock) -> None:
    request_validate(request=block.workflow.request, every_checksum=True, **BY)
    row = BlockValidation.objects.get()
    assert (row.generation, row.validated_at, row.catalogues_at, row.every_checksum) == (2, None, None, True)
    assert Effect.objects.get().key == f"{EffectKind.BLOCK_VALIDATE}:{block.pk}:2"
    assert AuditEntry.objects.get(action="request_validate").actor == "ann"


def test_a_block_is_validated_again_over_rest_and_shows_its_evidence(block: ProcessingBlock, operator: APIClient) -> None:
    assert operator.get(f"/api/v1/blocks/{block.pk}").json()["validation"]["generation"] == 1
    body = operator.post(f"/api/v1/blocks/{block.pk}/validate", {"reason": "damage"}).json()
    assert (body["validation"]["generation"], body["validation"]["every_checksum"]) == (2, False)
    assert body["validation"]["storage_checks"] == []
    assert operator.get(f"/api/v1/blocks/{new_block().pk}").json()["validation"] is None


@pytest.mark.parametrize("status", [RequestStatus.ACTIVE, RequestStatus.VALIDATED_OUTPUTS, RequestStatus.CLEANED])
def test_not_while_that_would_make_its_work_again(block: ProcessingBlock, operator: APIClient, status: RequestStatus) -> None:
    Request.objects.update(status=status)
    with pytest.raises(InvalidTransition, match="only when validating, completed, failed or aborted"):
        request_validate(request=block.workflow.request, **BY)
    problem(operator.post(f"/api/v1/blocks/{block.pk}/validate", {"reason": "damage"}), 409, "invalid_transition")
    assert BlockValidation.objects.get().generation == 1


@pytest.mark.parametrize("status", [RequestStatus.FAILED, RequestStatus.ABORTED])
def test_of_a_request_that_ended_unfinished_when_asked_and_until_it_is_taken_back(block: ProcessingBlock, status: str) -> None:
    """Nobody evaluates it, so what goes on with it is asked for by the pass over the storage."""
    Request.objects.update(status=status)
    BlockValidation.objects.all().delete()
    request = Request.objects.get()
    storage_checks_run()
    assert not BlockValidation.objects.exists(), "not by itself: who wants it taken back decides no cases"
    request_validate(request=request, **BY)
    assert Effect.objects.get().key == f"{EffectKind.BLOCK_VALIDATE}:{block.pk}:1"
    validation_again([block.pk])
    storage_checks_run()
    again = f"{EffectKind.BLOCK_VALIDATE}:{block.pk}:2"
    assert Effect.objects.filter(key=again).exists()
    Effect.objects.filter(key=again).delete()
    new_effect(request=request, kind=EffectKind.RUCIO_RELEASE, epoch=request.epoch)
    storage_checks_run()
    assert not Effect.objects.filter(key=again).exists()
    with pytest.raises(InvalidTransition, match="taken back"):
        request_validate(request=request, **BY)
