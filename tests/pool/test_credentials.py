"""Requests on the real stack whose jobs carry a proxy that ends: stopped, resumed with the renewed one, each event once."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG, DAGKind
from dags_app.payload.build import build_payload
from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.files import write_json
from dags_app.payload.contract.site_tasks import ListingTask, read_result
from dags_app.planning.dagfiles import credential_inc
from dags_app.planning.specs import AccountingSpec
from dags_app.planning.submitfiles import SiteSlot, site_job_submit
from requests_app.models import Request, RequestStatus, RequestTransition
from sites_app.models import Schedd
from sites_app.schedds import adapter
from tests.pool import condor
from tests.support.credentials import Authority, token, write
from tests.support.faults import fault
from tests.support.outcomes import assert_completed, assert_completed_once, ended, imported, status
from tests.support.stack import small_request, worker
from wms2.adapters.htcondor_process import since_boot
from wms2.conf import conf
from wms2.runtime.credentials import Credential

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
S = RequestStatus
#: One unit at a time, so that something is left to be stopped.
SETTINGS = {
    "WMS2_JOB_CREDENTIAL": "proxy",
    "dag_max_merge_groups": 1,
    "jobs_per_work_unit": 1,
}
UNITS, PER_JOB = 4, 10
HOUR_SECONDS = 3600.0


class Proxy:
    """The file that jobs carry, as whoever renews it sees it."""

    def __init__(self, place: Path) -> None:
        self.path, self._authority = place / "proxy", Authority(place / "authority")

    def renew(self, seconds: float) -> None:
        """Another one, good for so long."""
        write(self.path, self._authority.proxy("robot", seconds).read_text())

    @property
    def secret(self) -> bytes:
        """A line of its key."""
        return self.path.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----")[2].splitlines()[3]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    place = Path(os.environ["WMS2_STATE_DIR"]) / f"credentials-{uuid.uuid4().hex[:8]}"
    yield Proxy(place)
    shutil.rmtree(place)


@fault(
    "the jobs' proxy ends while a DAG runs",
    done="nobody renews it in time; later it is",
    spec="spec 8.1",
    afterwards="stopped cleanly, waits and says for what, resumed from its rescue file with the new one; each event once",
)
@pytest.mark.deep(
    "tests/requests_app/lifecycle/test_credentials.py::"
    "test_a_running_dag_is_stopped_when_it_ends_and_resumed_with_the_renewed_one"
)
def test_a_dag_whose_proxy_ends_is_stopped_and_resumed_with_the_renewed_one(ready: None, proxy: Proxy) -> None:
    proxy.renew(1000)
    request = imported(events=UNITS * PER_JOB, per_job=PER_JOB)
    with worker(**SETTINGS, WMS2_JOB_CREDENTIAL_PATH=str(proxy.path)) as running:
        running.wait(lambda: waits(request), seconds=120)
        assert not DAG.objects.filter(workflow__request=request).exists(), "it ends before the margin"
        proxy.renew(3 * HOUR_SECONDS)
        running.wait(lambda: DAG.objects.filter(workflow__request=request, units_done__gte=1).exists(), seconds=180)
        proxy.renew(600)
        running.wait(lambda: status(request) == S.QUEUED and waits(request), seconds=120)
        proxy.renew(5 * HOUR_SECONDS)
        running.wait(lambda: ended(request), seconds=300)

    assert_completed(request)
    dags = DAG.objects.filter(workflow__request=request).order_by("created_at")
    assert [dag.kind for dag in dags] == [DAGKind.FRESH, DAGKind.STOP_RESCUE]
    stops = RequestTransition.objects.filter(request=request, to_status=S.STOPPING)
    assert [stop.actor for stop in stops] == ["credentials"]
    for dag in dags:
        assert jobs_of(dag) and all(ad["x509userproxy"] == str(proxy.path) for ad in jobs_of(dag))
    ends = [max(ad["x509UserProxyExpiration"] for ad in jobs_of(dag)) for dag in dags]
    assert ends[1] - ends[0] > HOUR_SECONDS, "what is submitted later has the renewed one"
    kept = [path for path in Path(dags[0].submit_dir).rglob("*") if path.is_file()]
    assert not [path for path in kept if proxy.secret in path.read_bytes()]
    assert proxy.secret.decode() not in running.log.read_text(errors="replace")


@pytest.mark.parametrize("is_token", [False, True], ids=["proxy", "token"])
def test_a_job_at_a_site_that_is_no_node_carries_it_too(ready: None, proxy: Proxy, is_token: bool) -> None:
    proxy.renew(HOUR_SECONDS)
    if is_token:
        token(proxy.path, HOUR_SECONDS)
    place = conf().submit_root / f"site-{uuid.uuid4().hex[:8]}"
    place.mkdir(parents=True)
    (place / layout.SITE_TASK_FILE).touch()
    payload = place / Path(layout.PAYLOAD).name
    payload.write_text('#!/bin/sh\ncat "$X509_USER_PROXY$BEARER_TOKEN_FILE" | sha256sum | cut -c1-64 > seen\n')
    payload.chmod(0o755)
    carried = credential_inc(Credential("jobs", "-", str(proxy.path), is_token=is_token))
    text = carried + site_job_submit("T2_CH_CERN", SiteSlot(10), accounting=AccountingSpec())
    schedd = Schedd.objects.get()
    pool, stamps = adapter(schedd), {"WMS2_Instance": conf().instance, "WMS2_DagID": place.name}
    condor.wait_gone(pool.submit_job(place, text, stamps, since_boot()), seconds=60)
    assert (place / "seen").read_text().strip() == hashlib.sha256(proxy.path.read_bytes()).hexdigest()
    assert not (place / proxy.path.name).exists(), "it does not come back with what the job leaves"


@fault(
    "a token outside the container",
    done="a site's containers have the scratch directory elsewhere than BEARER_TOKEN_FILE says, and python3 is 3.6",
    spec="payload-contract, What a job finds",
    afterwards="the payload finds both, and one that has ended is told before anything is done with it",
)
@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -1.0], ids=["good", "ended"])
def test_a_token_is_found_inside_a_container(ready: None, proxy: Proxy, seconds: float) -> None:
    proxy.path.parent.mkdir(exist_ok=True)
    token(proxy.path, seconds)
    place = conf().submit_root / f"site-{uuid.uuid4().hex[:8]}"
    place.mkdir(parents=True)
    build_payload(place / Path(layout.PAYLOAD).name)
    write_json(place / layout.SITE_TASK_FILE, to_json(ListingTask("key", "T2_US_Purdue", 60.0, ())))
    carried = credential_inc(Credential("jobs", "-", str(proxy.path), is_token=True))
    text = carried + site_job_submit("T2_US_Purdue", SiteSlot(10), accounting=AccountingSpec())
    pool, stamps = adapter(Schedd.objects.get()), {"WMS2_Instance": conf().instance, "WMS2_DagID": place.name}
    condor.wait_gone(pool.submit_job(place, text, stamps, since_boot()), seconds=60)
    reported = (place / layout.SITE_STDERR).read_text()
    if seconds > 0:
        assert read_result(place).job == "key", reported
    else:
        assert "exit code 95009: the job's token ends at " in reported


@pytest.mark.deep("tests/pool/test_credentials.py::test_a_token_is_found_inside_a_container")
def test_a_whole_request_with_a_token_is_done_in_containers(ready: None, proxy: Proxy) -> None:
    proxy.path.parent.mkdir(exist_ok=True)
    token(proxy.path, 24 * HOUR_SECONDS)
    document = small_request(UNITS * PER_JOB, PER_JOB)
    document["assignRequest"]["SiteWhitelist"] = ["T2_US_Purdue"]
    request = imported(document)
    carried = {"WMS2_JOB_CREDENTIAL": "token", "WMS2_JOB_CREDENTIAL_PATH": str(proxy.path)}
    with worker(**carried, jobs_per_work_unit=2) as running:
        running.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request)


def jobs_of(dag: DAG) -> list[dict[str, Any]]:
    """Its node jobs that have ended."""
    return condor.history(
        f'WMS2_DagID == "{dag.directory_id}" && WMS2_Fence == {dag.fence} && JobUniverse == 5 && WMS2_Role =!= "landing"'
    )


def waits(request: Request) -> bool:
    """Whether it says that it waits for the credential."""
    return "WMS2_JOB_CREDENTIAL_PATH" in Request.objects.values_list("waiting_for", flat=True).get(pk=request.pk)
