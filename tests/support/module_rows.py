"""Rows that the tests of a module share: made once, seen by each, and nothing that a test does to them is there for the next.

The module's rows are made in a transaction that is never committed; each test runs in a savepoint of it, as ``django_db`` tests
are rolled back anyway. Not for modules with tests of several transactions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker


@pytest.fixture(scope="module")
def module_rows(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Fixtures of the module's scope may make rows."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)
