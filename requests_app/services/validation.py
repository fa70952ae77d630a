"""Outputs are validated again because an operator wants it (ADR 0083)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from outputs_app.models import ProcessingBlock
from outputs_app.validation import validation_again, validation_tend
from requests_app.models import Request, RequestStatus
from requests_app.services.acting import acting, applies

S = RequestStatus
#: Before these nothing is validated yet; in between, what is not validated would be taken for lost, and made again.
_WHEN = (S.VALIDATING_OUTPUTS, S.WAITING_INTEGRITY, S.COMPLETED)


def request_validate(*, request: Request, actor: str, reason: str, every_checksum: bool = False) -> None:
    """Validate all its blocks again.

    Raises:
        InvalidTransition: none is validated yet, or they are being counted just now.
    """
    with acting(request, actor, "request_validate", reason, every_checksum=every_checksum):
        applies(request, validate_refused)
        _again(request, ProcessingBlock.objects.filter(workflow=request.workflow).values_list("pk", flat=True), every_checksum)


def block_validate(*, block: ProcessingBlock, actor: str, reason: str, every_checksum: bool = False) -> None:
    """Validate one block again.

    Raises:
        InvalidTransition: as above.
    """
    request = block.workflow.request
    with acting(request, actor, "block_validate", reason, block=block.dbs_block_name, every_checksum=every_checksum):
        applies(request, validate_refused)
        _again(request, [block.pk], every_checksum)


def _again(request: Request, block_ids: Collection[Any], every_checksum: bool) -> None:
    validation_again(block_ids, every_checksum=every_checksum)
    validation_tend(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)


def validate_refused(request: Request) -> str:
    """Why its blocks cannot be validated again now; empty if they can."""
    return "" if request.status in _WHEN else f"It is {request.get_status_display()}; only when validating or completed."
