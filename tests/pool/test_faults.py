"""A faulty network between WMS2 and ReqMgr2, ConfigCache, DBS, Rucio and CRIC, on the real stack.

Whatever goes wrong on the way, at the end there is one DAGMan job, one DBS block with exactly its files, one rule for each file
and one tape rule for each block, and the account adds up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outputs_app.models import Effect, EffectKind, EffectState
from outputs_app.services import effect_retry_now
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import request_fetch, request_release
from sites_app.models import Site, SiteRse
from sites_app.sync import sites_sync
from tests.support.adapters import adapters_forget
from tests.support.fault_proxy import Armed, Fault
from tests.support.faults import fault
from tests.support.inputs import seeded_input, small_reprocessing
from tests.support.network import Kind, Network, arm_each, network
from tests.support.outcomes import assert_completed_once, ended, imported, status, waiting_for
from tests.support.stack import worker
from wms2.errors import NotFoundInService, ServiceUnavailable

DEEP = pytest.mark.deep(
    "tests/pool/test_faults.py::test_when_every_kind_of_call_fails_once_requests_complete_as_if_nothing_had_happened"
)
pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
#: A hanging service is given up quickly; a call takes milliseconds here.
QUICK = {"WMS2_SERVICE_TIMEOUT_SECONDS": "2"}
READER, WRITER = "/dbs/prod/global/DBSReader", "/dbs/prod/global/DBSWriter"
_CONTAINER, _BLOCK = r"^/dids/cms/(?:(?!%23)[^/?])+", r"^/dids/cms/[^/?]*%23[^/?]*"

CATALOGUES = (
    Kind("GET", r"^/couchdb/\w+/\w{32}$"),
    Kind("GET", "/configFile$"),
    *(Kind("GET", rf"^{READER}/{what}\?") for what in ("datasets", "blocks", "files", "filelumis")),
    *(Kind("GET", rf"^{WRITER}/{what}\?") for what in ("datasets", "blocks", "files", "outputconfigs")),
    Kind("POST", f"^{WRITER}/bulkblocks$"),
)
RUCIO = (
    Kind("GET", "^/auth/userpass"),
    Kind("GET", "^/replicas/cms/"),
    Kind("POST", _CONTAINER + "$"),
    Kind("POST", _BLOCK + "$"),
    Kind("POST", _CONTAINER + "/dids$"),
    Kind("POST", "^/replicas$"),
    Kind("GET", _BLOCK + "/dids"),
    Kind("POST", _BLOCK + "/dids$"),
    Kind("POST", "^/rules/$", "/store/"),
    Kind("PUT", _BLOCK + "/status$"),
    Kind("GET", r"^/rses/\?"),
    Kind("GET", "^/rses/[^/]+/attr/"),
    Kind("POST", "^/rules/$", "_Tape"),
)


@pytest.fixture(name="net")
def _net(ready: None, tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path) as net:
        yield net


def all_met(faults: list[Armed]) -> None:
    missed = [(f.fault.name, f.method, f.path.pattern) for f in faults if not f.hits]
    assert not missed, f"never happened: {missed}"


@fault(
    "every call fails once",
    done="each kind of call to ConfigCache, DBS and Rucio: 500, answer lost, hangs, late, refused",
    spec="spec 4.7; docs/design/services.md, All",
    afterwards="retried by what can be repeated; COMPLETED as if nothing had happened",
)
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((Fault.ERROR_500, Fault.DROP_AFTER_ACTING), id="500-then-lost-answer"),
        pytest.param((Fault.HANG, Fault.DELAY), id="hang-then-delay", marks=DEEP),
        pytest.param((Fault.REFUSE,), id="refused-connection", marks=DEEP),
    ],
)
def test_when_every_kind_of_call_fails_once_requests_complete_as_if_nothing_had_happened(
    net: Network, tmp_path: Path, faults: tuple[Fault, ...]
) -> None:
    requests = [imported(events=20), imported(small_reprocessing(seeded_input(tmp_path)))]
    armed = arm_each(net.catalogues, CATALOGUES, faults) + arm_each(net.rucio, RUCIO, faults)
    environment = net.environment | QUICK
    with worker(**environment, WMS2_NODE="a") as first, worker(**environment, WMS2_NODE="b"):
        first.wait(lambda: all(ended(request) for request in requests), seconds=300)
    all_met(armed)
    for request in requests:
        assert_completed_once(request)


@fault(
    "services away",
    done="ConfigCache, then DBS and Rucio refuse connections for a while",
    spec="docs/design/services.md, All",
    afterwards="waited for by name, nothing concluded, then COMPLETED once",
)
@fault(
    "refusals",
    done="ConfigCache, DBS and Rucio answer 400 once each",
    spec="docs/design/model.md, Effects",
    afterwards="HELD, or an alert with the answer; goes on at an operator's confirmation; COMPLETED once",
)
def test_what_is_away_is_waited_for_by_name_and_what_is_refused_goes_on_at_an_operators_word(net: Network) -> None:
    net.catalogues.arm(Fault.REFUSE)
    request = imported(events=20)
    with worker(**net.environment, **QUICK) as running:
        running.wait(lambda: "configcache" in waiting_for(request), seconds=60)
        assert status(request) == RequestStatus.SUBMITTED
        net.catalogues.disarm()
        net.catalogues.arm(Fault.ERROR_400, path="^/couchdb/", times=1)
        running.wait(lambda: ended(request), seconds=60)
        request.refresh_from_db()
        assert (request.status, request.hold_code) == (RequestStatus.HELD, HoldCode.REFUSED)
        assert "configcache" in request.hold_reason
        away = net.catalogues.arm(Fault.REFUSE, path=WRITER)
        net.rucio.arm(Fault.REFUSE)
        request_release(request=request, actor="tester", reason="repaired")

        running.wait(lambda: "registrations in DBS and Rucio" in waiting_for(request), seconds=120)
        running.wait(lambda: failed_effects(request, "rucio"), seconds=60)
        assert status(request) == RequestStatus.ACTIVE
        net.rucio.disarm()  # DBS hears of a block when its files are in Rucio
        running.wait(lambda: failed_effects(request, "dbs"), seconds=120)
        assert status(request) == RequestStatus.ACTIVE
        net.catalogues.arm(Fault.ERROR_400, method="POST", path=f"^{WRITER}/bulkblocks$", times=1)
        net.rucio.arm(Fault.ERROR_400, method="POST", path="^/rules/$", body="_Tape", times=1)
        net.catalogues.armed.remove(away)
        refused_effects = Effect.objects.filter(request=request, state=EffectState.REFUSED)
        for kind in (EffectKind.DBS_BLOCK, EffectKind.RUCIO_TAPE):  # no block goes to tape before DBS has it and its parents
            running.wait(lambda wanted=kind: refused_effects.filter(kind=wanted).exists(), seconds=120)
            running.wait(lambda: "an operator" in waiting_for(request), seconds=60)
            assert status(request) == RequestStatus.ACTIVE
            effect = refused_effects.get()
            assert "400" in effect.last_error or "RucioException" in effect.last_error
            effect_retry_now(effect=effect, actor="tester", reason="repaired")
        running.wait(lambda: ended(request), seconds=120)
    assert_completed_once(request)


@fault(
    "CRIC fails",
    done="CRIC: 500, refused, answer lost, hangs",
    spec="docs/design/services.md, CRIC",
    afterwards="no site is changed",
)
def test_a_failing_cric_changes_no_site(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (sorted(Site.objects.values_list("name", flat=True)), SiteRse.objects.count())
    pointed_at(net, monkeypatch)
    for wrong in (Fault.ERROR_500, Fault.REFUSE, Fault.DROP_AFTER_ACTING, Fault.HANG):
        net.catalogues.arm(wrong, path="preset=data-processing")
        with pytest.raises(ServiceUnavailable, match="cric"):
            sites_sync()
        net.disarm()
        adapters_forget()  # its circuit breaker with it
        assert (sorted(Site.objects.values_list("name", flat=True)), SiteRse.objects.count()) == before
    sites_sync()
    assert (sorted(Site.objects.values_list("name", flat=True)), SiteRse.objects.count()) == before


@fault(
    "ReqMgr2 fails",
    done="ReqMgr2: 500, refused, hangs",
    spec="docs/design/services.md, All",
    afterwards="told apart from a request that does not exist; nothing stored",
)
def test_a_failing_reqmgr2_is_told_apart_from_a_request_that_does_not_exist(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed_at(net, monkeypatch)
    for wrong in (Fault.ERROR_500, Fault.REFUSE, Fault.HANG):
        net.catalogues.arm(wrong, path="/reqmgr2/")
        with pytest.raises(ServiceUnavailable, match="reqmgr2"):
            request_fetch(request_name="nobody_knows_it")
        net.disarm()
        adapters_forget()  # and the circuit that three failures in a row have opened
    with pytest.raises(NotFoundInService):
        request_fetch(request_name="nobody_knows_it")
    assert not Request.objects.exists()


def pointed_at(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process uses the proxies too."""
    for name, value in (net.environment | {"WMS2_SERVICE_TIMEOUT_SECONDS": "1"}).items():
        monkeypatch.setenv(name, value)
    adapters_forget()


@pytest.fixture(autouse=True)
def _adapters_of_the_test_process() -> Iterator[None]:
    yield
    adapters_forget()


def failed_effects(request: Request, service: str) -> bool:
    return Effect.objects.filter(request=request, kind__startswith=service).exclude(last_error="").exists()
