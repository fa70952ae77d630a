"""The database is lost and restored from a backup of some minutes ago, by the runbook: nothing is done twice."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dags_app.models import DAG
from requests_app.models import HoldCode, Reconciliation, Request, RequestStatus
from requests_app.service_level import new_work_allow, new_work_stop, service
from requests_app.services import request_hold, request_release
from requests_app.services.reconciling import reconcile
from tests.pool import condor
from tests.support import services
from tests.support.faults import fault
from tests.support.outcomes import assert_completed, assert_completed_once, ended, imported, status
from tests.support.places import ROOT
from tests.support.stack import database_url, worker
from wms2.conf import conf

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
S = RequestStatus
BY: dict[str, Any] = {"actor": "tester", "reason": "for the test"}


def held_for(request: Request) -> str:
    return Request.objects.values_list("hold_code", flat=True).get(pk=request.pk)


def submitted(*requests: Request) -> bool:
    """Whether each has a DAG whose job is recorded."""
    dags = DAG.objects.filter(workflow__request__in=requests).exclude(dagman_cluster_id="")
    return dags.values("workflow").distinct().count() == len(requests)


def unknown_dags(place: Path) -> dict[str, str]:
    """Those in the queue that no row knows, as the runbook has them found: request -> cluster."""
    found = re.search(r"### A lost database\n.*?```\n(.*?)```", (ROOT / "docs/runbook.md").read_text(), re.DOTALL)
    assert found is not None
    manage = f"{sys.executable} {ROOT}/manage.py"
    commands = (
        dedent(found[1])
        .replace("INSTANCE", conf().instance)
        .replace("OWNER", pwd.getpwuid(os.getuid()).pw_name)
        .replace("deploy/run/process manage", manage)
    )
    environment = {**os.environ, "WMS2_DATABASE_URL": database_url()}
    reported = subprocess.run(
        ["bash", "-ec", commands], cwd=place, env=environment, check=True, capture_output=True, text=True, timeout=180
    ).stdout
    return {request: cluster for _, request, cluster in map(str.split, reported.splitlines())}


@fault(
    "database restored from a backup",
    done="PostgreSQL is dumped while requests run; DAGs are submitted, blocks registered; the dump is restored and used",
    spec="docs/runbook.md, A lost database",
    afterwards="DAGs that the dump has are found by their ids, others told; nothing is submitted or registered twice: COMPLETED",
)
def test_with_a_database_of_some_minutes_ago_nothing_is_submitted_or_registered_twice(ready: None, tmp_path: Path) -> None:
    with worker() as running:
        new_work_stop(service=service(), **BY)
        later = imported(events=20)
        running.wait(lambda: status(later) == S.QUEUED, seconds=60)
        request_hold(request=later, **BY)
        running.wait(lambda: status(later) == S.HELD, seconds=60)
        new_work_allow(service=service(), **BY)
        early = imported(events=20)
        running.wait(lambda: status(early) == S.ACTIVE, seconds=120)
    between = imported(events=20)
    with worker(WMS2_CRASH_AT="submit.claimed", WMS2_CRASH_MARK=str(tmp_path / "mark")) as running:
        running.wait(lambda: running.was_killed, seconds=120)
        services.postgres_dump(tmp_path / "dump")
        running.start()
        running.wait(lambda: ended(early) and ended(between), seconds=300)
        request_release(request=later, **BY)
        forgotten = imported(events=20)
        running.wait(lambda: submitted(later, forgotten), seconds=120)
        running.kill()
        dags = DAG.objects.filter(workflow__request__in=(later, forgotten))
        for cluster in dags.values_list("dagman_cluster_id", flat=True):  # they stay in the queue, however quick their jobs are
            subprocess.run(["condor_hold", cluster], check=True, capture_output=True, timeout=60)
    with services.postgres_restored(tmp_path / "dump"):
        assert not Request.objects.filter(pk=forgotten.pk).exists()
        assert [status(request) for request in (later, early, between)] == [S.HELD, S.ACTIVE, S.PLANNING]
        unknown = unknown_dags(tmp_path)
        assert unknown.keys() == {later.request_name, forgotten.request_name}
        for cluster in unknown.values():
            subprocess.run(["condor_rm", cluster], check=True, capture_output=True, timeout=60)
        for cluster in unknown.values():
            condor.wait_gone(int(cluster), seconds=60)
        assert not unknown_dags(tmp_path)
        asked = reconcile(**BY)
        with worker() as running:
            running.wait(lambda: ended(early) and ended(between), seconds=180)
            request_release(request=later, **BY)
            running.wait(lambda: held_for(later) == HoldCode.REMOVED, seconds=120)  # it found the job that was removed by hand
            request_release(request=later, **BY)
            running.wait(lambda: ended(later), seconds=300)
        assert Reconciliation.objects.get(pk=asked.pk).found.get("problem") is None
        assert_completed_once(early)
        assert_completed_once(between)
        assert_completed(later, abandoned=20)
        assert not unknown_dags(tmp_path)
