"""Flower as the demo runs it, on the test stack's broker: WMS2's sign-in opens it, and it changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from rest_framework.authtoken.models import Token

from deploy.stack import paths
from deploy.stack.services.base import Place
from deploy.stack.services.django import Wms2
from tests.support import stack
from tests.support.servers import free_port
from tests.support.waiting import until
from wms2.identities.grants import OPERATORS

pytestmark = pytest.mark.slow
PAGES = ("/", "/workers", "/tasks", "/broker", "/api/workers", "/api/tasks", "/metrics", "/worker/x", "/login", "/nothing")


def flower(directory: Path, port: int, web_port: int) -> Any:
    layout = replace(paths.layout(), state_root=directory)
    return Wms2(Place(layout, directory, dict(os.environ)), web_port, port, 1).flower()


@contextmanager
def running(directory: Path, web_port: int) -> Iterator[str]:
    """Where Flower answers, asking the web server at that port."""
    port = free_port()
    service = flower(directory, port, web_port)
    file = directory / "flower.log"
    with file.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in service.argv], env=dict(service.environment), cwd=service.cwd, stdout=log, stderr=log
        )
    try:
        until(
            lambda: process.poll() is not None or service.problem() is None,
            lambda: f"{service.problem()}: {file.read_text()}",
            seconds=90,
        )
        assert process.poll() is None, file.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def cookie(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}


def test_it_is_open_to_operators_who_are_signed_in_to_wms2_and_changes_nothing(live_server: Any, tmp_path: Path) -> None:
    if reason := stack.missing():
        pytest.skip(reason)
    rita, olga = User.objects.create_user("rita"), User.objects.create_user("olga")
    olga.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    with running(tmp_path, int(live_server.url.rpartition(":")[2])) as address:

        def codes(**with_: Any) -> set[int]:
            return {requests.get(address + path, timeout=20, allow_redirects=False, **with_).status_code for path in PAGES}

        assert codes() == {401}
        assert codes(auth=("admin", "opensesame")) == {401}
        assert codes(cookies={"user": "olga", settings.SESSION_COOKIE_NAME: "made-up"}) == {401}
        spoofed = {"Cms-Auth-Status": "OK", "Cms-Authn-Login": "olga", "X-Forwarded-User": "olga", "Remote-User": "olga"}
        assert codes(headers=spoofed) == {401}
        assert codes(cookies=cookie(rita)) == {403}

        shown = requests.get(f"{address}/workers", cookies=cookie(olga), timeout=20)
        assert (shown.status_code, "Flower" in shown.text) == (200, True)
        assert requests.get(f"{address}/metrics", cookies=cookie(olga), timeout=20).status_code == 200
        token = {"Authorization": f"Token {Token.objects.create(user=olga).key}"}
        assert codes(headers=token) == {200, 404}
        for name in ("worker/shutdown/wms2@localhost", "task/apply/wms2.tasks.run_bulk", "task/revoke/x"):
            asked = ({}, {"cookies": cookie(olga)}, {"headers": token})
            answers = [requests.post(f"{address}/api/{name}", timeout=20, **each) for each in asked]
            assert [answer.status_code for answer in answers] == [403, 403, 403], name
            assert "Read only" in answers[-1].text, name

        olga.is_active = False
        olga.save()
        assert codes(cookies=cookie(olga)) == {401}


def test_while_the_web_does_not_answer_it_is_closed_and_its_health_check_answers(tmp_path: Path) -> None:
    if reason := stack.missing():
        pytest.skip(reason)
    with running(tmp_path, free_port()) as address:
        assert [requests.get(address + path, timeout=20).status_code for path in ("/workers", "/healthcheck")] == [503, 200]


def test_with_a_login_of_its_own_it_does_not_start(tmp_path: Path) -> None:
    service = flower(tmp_path, 1, 1)
    argv, settings = [str(word) for word in service.argv], {**service.environment, "FLOWER_BASIC_AUTH": "admin:opensesame"}
    ended = subprocess.run(argv, env=settings, cwd=service.cwd, capture_output=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert b"unset FLOWER_BASIC_AUTH" in ended.stderr
