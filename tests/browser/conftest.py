"""A browser for the tests of this directory. None is left behind in the others, which would trip over its event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import Browser

from tests.support import browser
from tests.support.browser import Window, window
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


@pytest.fixture
def desk(chromium: Browser, live_server: Any, operator: User) -> Iterator[Window]:
    """A window of an operator who is signed in; whatever the browser complains of fails the test."""
    with window(chromium, live_server.url) as opened:
        opened.sign_in_as(operator)
        yield opened
        assert opened.complaints == []
