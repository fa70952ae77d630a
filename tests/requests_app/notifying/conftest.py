"""Channels of each kind at servers of this machine, and a clock that is turned on by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_httpserver import HTTPServer

from requests_app.models import AlertChannel
from tests.support.mail_server import MailServer, mail_server
from tests.support.web_clients import operator, reader
from wms2.conf import conf
from wms2.runtime import clock

__all__ = ["operator", "reader"]
KEY = b"k" * 32


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _settings(mails: MailServer, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    for name, said in {"hook": f"whsec_{base64.b64encode(KEY).decode()}", "chat": "xyz123"}.items():
        (tmp_path / name).write_text(said + "\n")
    monkeypatch.setenv("WMS2_ALERT_SECRETS", json.dumps({name: str(tmp_path / name) for name in ("hook", "chat")}))
    monkeypatch.setenv("WMS2_MAIL_SERVER", mails.place)
    monkeypatch.setenv("WMS2_MAIL_FROM", "wms2@example.org")
    monkeypatch.setenv("WMS2_RUNBOOK_URL", "https://docs.example.org/runbook")
    monkeypatch.setattr("wms2.runtime.notify._send", lambda name, args: None)
    conf.cache_clear()
    yield
    monkeypatch.undo()
    conf.cache_clear()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Turn the clock on."""
    gone = timedelta()

    def now() -> datetime:
        return timezone.now() + gone

    def turn(**much: float) -> None:
        nonlocal gone
        gone += timedelta(**much)

    monkeypatch.setattr(clock, "now", now)
    return turn


@pytest.fixture
def channel(httpserver: HTTPServer) -> Callable[..., AlertChannel]:
    """A channel of a kind that gets what its route says."""

    def make(kind: str, route: dict[str, str] | None = None, **fields: Any) -> AlertChannel:
        places = {"mail": "ops@example.org", "alertmanager": httpserver.url_for("")}
        secret = {"webhook": "hook", "mattermost": "chat"}.get(kind, "")
        values = {"address": places.get(kind, httpserver.url_for(f"/{kind}")), "secret": secret, "name": kind, **fields}
        row = AlertChannel.objects.create(kind=kind, created_at=timezone.now(), created_by="olga", **values)
        row.routes.create(created_at=timezone.now(), actor="olga", **(route or {}))
        return row

    return make
