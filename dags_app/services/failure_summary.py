"""What failed most, in words: for the reason of a hold (error-handling 3.1)."""

from __future__ import annotations

import uuid

from dags_app.models import FailureGroup
from wms2.words import counted


def failure_summary(workflow_id: uuid.UUID) -> str:
    """The most frequent kind of failure in words; empty when none is known."""
    group = FailureGroup.objects.filter(workflow_id=workflow_id).order_by("-given_up", "-attempts", "id").first()
    if group is None:
        return ""
    where = f" at {group.site}" if group.site else ""
    step = f" in {group.step}" if group.step else ""
    return f"most often {group.code} ({group.category}){step}{where}, {counted(group.attempts, 'time')}: {group.reason}"[:1000]
