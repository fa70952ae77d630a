"""No process of WMS2 acts on the database of another installation."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from celery.signals import beat_init, worker_init
from django.core.management import CommandError, call_command

from requests_app.models import Installation
from requests_app.monitoring.instance_gate import InstanceGate
from requests_app.tasks import refuse_foreign_database
from tests.support.places import ROOT
from tests.support.stack import database_url
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(name="foreign")
def _foreign() -> None:
    Installation.objects.create(id=1, instance="another", environment="production")


def test_lifecycle_tick_refuses_it(foreign) -> None:
    with pytest.raises(CommandError, match="not started: this database belongs to instance another"):
        call_command("lifecycle_tick")


@pytest.mark.parametrize("signal", [worker_init, beat_init], ids=["worker", "beat"])
def test_worker_and_beat_refuse_it(foreign, signal: Any) -> None:
    assert refuse_foreign_database in [reference() for _, reference in signal.receivers]
    with pytest.raises(SystemExit, match="not started: this database belongs to instance another"):
        refuse_foreign_database()


def test_the_web_does_not_start_on_it(foreign) -> None:
    environment = {**os.environ, "WMS2_DATABASE_URL": database_url()}
    reported = subprocess.run(
        [sys.executable, "-c", "import wms2.wsgi"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert reported.returncode != 0
    assert "not started: this database belongs to instance another" in reported.stderr


def test_a_web_that_started_before_the_database_serves_nothing_but_its_health_of_a_foreign_one() -> None:
    def ask(path: str) -> str:
        answers: list[str] = []
        body = b"".join(gate({"PATH_INFO": path}, lambda status, headers: answers.append(status)))
        return answers[0] if answers else body.decode()

    gate = InstanceGate(lambda environ, start: [b"served"])
    assert ask("/api/v1/requests") == "served", "nobody's yet: it is being set up"
    row = Installation.objects.create(id=1, instance="another", environment="production")
    assert ask("/api/v1/requests") == "503 Service Unavailable"
    assert ask("/livez") == ask("/readyz") == "served"
    row.instance, row.environment = conf().instance, conf().environment
    row.save()
    assert ask("/api/v1/requests") == "served"
