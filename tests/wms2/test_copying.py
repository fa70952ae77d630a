"""Rows written by COPY are what was given, or none of them is there."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from wms2.models import AuditEntry
from wms2.runtime.copying import copy_rows, reserved_ids

FIELDS = ("id", "at", "actor", "action", "target_type", "target", "outcome", "reason", "evidence")

pytestmark = pytest.mark.django_db


def entry(key: int, reason: str | None) -> tuple[object, ...]:
    return (key, timezone.now(), "olga", "test", "", "", "done", reason, '{"lumis": [[1, 10]]}')


def test_rows_are_read_as_they_were_given() -> None:
    reported = ["plain", "", "a\ttab, a\nnewline, \\N and \\.", "übergroß ☃"]
    keys = reserved_ids(AuditEntry, len(reported))
    copy_rows(AuditEntry, FIELDS, (entry(key, reason) for key, reason in zip(keys, reported, strict=True)))
    rows = AuditEntry.objects.filter(pk__in=keys).order_by("pk")
    assert [row.reason for row in rows] == reported
    assert rows[0].evidence == {"lumis": [[1, 10]]}
    assert AuditEntry.objects.create(actor="olga", action="test").pk > max(keys), "reserved keys are given to nobody else"


def test_of_rows_that_the_database_refuses_none_is_written() -> None:
    keys = reserved_ids(AuditEntry, 2)
    with pytest.raises(IntegrityError), transaction.atomic():
        copy_rows(AuditEntry, FIELDS, [entry(keys[0], "good"), entry(keys[1], None)])
    assert not AuditEntry.objects.filter(pk__in=keys).exists()
