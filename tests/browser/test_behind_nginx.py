"""Pages and streams behind nginx as ``deploy/README.md`` sets it up: TLS, one address for both, the strict content policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from playwright.sync_api import Browser
from rest_framework.authtoken.models import Token

from requests_app.feed import emit_event
from requests_app.models import RequestStatus
from tests.support.browser import window
from tests.support.credentials import Authority
from tests.support.front_end import documented_nginx
from tests.support.rows import request_row
from tests.support.streams import PATIENCE, streaming
from wms2.conf import conf


def test_a_program_and_a_page_hear_at_once_of_what_happens(
    chromium: Browser, live_server: Any, operator: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, authority = Token.objects.create(user=operator).key, Authority(tmp_path / "authority")
    with streaming(monkeypatch) as stream, documented_nginx(tmp_path, authority, live_server.url, stream.address) as url:
        monkeypatch.setenv("WMS2_STREAM_URL", "/stream")  # as installations have it
        conf.cache_clear()
        address, login = f"{url}/api/v1/events/stream", {"Authorization": f"Token {key}"}
        with (
            requests.get(address, headers=login, verify=str(authority.ca), stream=True, timeout=PATIENCE) as answer,
            window(chromium, url, tests_tls=True) as opened,
        ):
            assert (answer.status_code, answer.url.partition("?")[0]) == (200, f"{url}/stream")
            assert "Transfer-Encoding" in answer.headers and answer.headers["Cache-Control"] == "no-store"
            found = answer.iter_lines(chunk_size=1, decode_unicode=True)
            assert next(found) == "retry: 2000"
            opened.sign_in_as(operator)
            shown = opened.page.goto(f"{url}/", wait_until="load")
            assert shown is not None
            policy = shown.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';") and "connect-src" not in policy and "unsafe" not in policy
            while stream.readers != 2:
                opened.page.wait_for_timeout(100)
            emit_event("request.status", request_row(RequestStatus.QUEUED, request_name="olga_new_one"))
            # what nginx holds back until its buffers are full would never come: the stream goes on
            said = json.loads(next(line for line in found if line.startswith("data: ")).removeprefix("data: "))
            assert said["kind"] == "request.status"
            opened.page.get_by_text("olga_new_one").first.wait_for(timeout=1000 * PATIENCE)
            assert opened.complaints == []
