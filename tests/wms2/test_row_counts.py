"""Counts that the database keeps: exact whatever writes, seen with what changed them, and nobody waits for them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from requests_app.models import HoldCode, Request, RequestStatus
from tests.support.rows import request_row
from wms2.metrics.row_counts import counts_fold, row_counts
from wms2.models import RowCount

S = RequestStatus


def requests() -> Counter[str]:
    return +row_counts()["requests"]


@pytest.mark.django_db
def test_rows_that_come_change_and_go_are_counted_one_by_one_and_many_at_once() -> None:
    rows = [request_row(S.QUEUED) for _ in range(3)]
    Request.objects.bulk_create([Request(request_name=f"r{i}", request_data={}, status=S.NEW) for i in range(5)])
    assert requests() == {"queued::false": 3, "new::false": 5}
    Request.objects.filter(status=S.NEW).update(status=S.HELD, hold_code=HoldCode.OPERATOR, hold_reason="x", alert_code="late")
    Request.objects.filter(pk=rows[0].pk).update(alert_code="late")
    assert requests() == {"queued::false": 2, "queued::true": 1, "held:operator:true": 5}
    Request.objects.filter(status=S.HELD).delete()
    assert requests() == {"queued::false": 2, "queued::true": 1}


@pytest.mark.django_db
def test_a_change_of_anything_else_writes_no_row() -> None:
    row = request_row(S.QUEUED)
    before = RowCount.objects.count()
    Request.objects.filter(pk=row.pk).update(priority=7, waiting_for="a slot", status=S.QUEUED)
    assert RowCount.objects.count() == before


@pytest.mark.django_db
def test_adding_up_changes_no_count_and_leaves_a_row_for_each_kind() -> None:
    for _ in range(3):
        request_row(S.QUEUED)
    Request.objects.update(status=S.ABORTED)
    before = requests()
    counts_fold()
    assert requests() == before == {"aborted::false": 3}
    kept = list(RowCount.objects.values_list("pk", flat=True))
    assert len(kept) == 1
    counts_fold()
    assert list(RowCount.objects.values_list("pk", flat=True)) == kept, "nothing had changed, and it was written again"


@pytest.mark.django_db(transaction=True)
def test_neither_an_open_transaction_nor_a_fold_holds_up_another_change() -> None:
    rows = [request_row(S.QUEUED) for _ in range(3)]

    def elsewhere(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
        Request.objects.filter(pk=rows[number].pk).update(status=S.ABORTED)
        counts_fold()
        connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Request.objects.filter(pk=rows[0].pk).update(status=S.ABORTED)
        pool.submit(elsewhere, 1).result()
        counts_fold()
        pool.submit(elsewhere, 2).exception()
        assert requests() == {"aborted::false": 3}
    assert requests() == {"aborted::false": 3}
    counts_fold()
    assert requests() == {"aborted::false": 3}


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_taken_back_was_never_counted() -> None:
    row = request_row(S.QUEUED)
    with pytest.raises(RuntimeError), transaction.atomic():
        Request.objects.filter(pk=row.pk).update(status=S.ABORTED)
        raise RuntimeError
    assert requests() == {"queued::false": 1}
