"""A browser for the tests of this directory. None is left behind in the others, which would trip over its event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import Browser

from tests.support import browser
from wms2.identities.grants import OPERATORS


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A running browser; skips without one."""
    reason = browser.missing()
    if reason:
        pytest.skip(reason)
    with browser.browser() as running:
        yield running


@pytest.fixture
def operator(transactional_db: Any) -> User:
    """Staff and member of the operators' group, who signs in with the password ``opensesame``."""
    user = User.objects.create_user("olga", password="opensesame", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    return user
