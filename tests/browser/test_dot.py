"""The dot at the top of the pages: green only while somebody drives the requests."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Browser, expect

from requests_app.models import LEADER_LEASE, Lease
from tests.support.browser import window
from tests.support.rows import request_row
from tests.support.side_by_side import PATIENCE

pytestmark = pytest.mark.slow


def test_it_is_not_green_while_nobody_drives_and_turns_green_by_itself(
    chromium: Browser, live_server: Any, operator: User
) -> None:
    row = request_row()
    for path in ("/", row.get_absolute_url()):
        Lease.objects.all().delete()
        with window(chromium, live_server.url) as opened:
            opened.sign_in_as(operator)
            opened.go(path)
            dot = opened.page.locator("#pulse")
            expect(dot).to_have_text("the life cycle has stopped")
            expect(dot).to_have_class(re.compile("late"))
            now = timezone.now()
            Lease.objects.create(
                name=LEADER_LEASE, owner="worker-1", expires_at=now + timedelta(hours=1), data={"cycle_ended_at": now.isoformat()}
            )
            expect(dot).to_have_text("live", timeout=30_000 * PATIENCE)
            expect(dot).not_to_have_class(re.compile("late"))
            assert opened.complaints == []
