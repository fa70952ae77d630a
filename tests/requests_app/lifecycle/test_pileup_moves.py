"""Pileup that moves while a DAG runs: what has not begun lands where it lies by now; what cannot is an alert."""

from __future__ import annotations

import pytest

from dags_app.models import DAGHistory
from dags_app.services.leave_site import UNITS_LEAVE
from requests_app.lifecycle.pileup_moves import CHECK_SECONDS, PILEUP_LEFT
from requests_app.models import Event, Request
from requests_app.work import pileup
from tests.support.scripted import documents
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import fresh
from tests.support.scripted.schedd import Job
from tests.support.scripted.units import land, left, waiting, write_status
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
FNAL, CERN = "T1_US_FNAL", "T2_CH_CERN"
CODE = "pileup_elsewhere"


class Mixed:
    """A generation of three units whose pileup lies at FNAL and CERN; its DAG runs, and two units have landed, one at each."""

    def __init__(self, world: World) -> None:
        self.world, self.pileup = world, world.source("Premix", *[100] * 4)
        document = documents.generation(300)
        self.request: Request = world.request({**document, "Step2": {**document["Step2"], "MCPileup": self.pileup}})
        world.cycle()
        self.job: Job = world.job_of(self.request)
        land(self.job, "mg_000000", FNAL)
        land(self.job, "mg_000001", CERN)
        world.schedd.waiting = [waiting("mg_000000", 0.1, FNAL), waiting("mg_000001", 0.1, CERN)]

    def move(self, *rses: str) -> None:
        """To these, and look."""
        source = self.world.sources[self.pileup]
        source.locations = dict.fromkeys(source.blocks, rses)
        self.look()

    def look(self) -> None:
        write_status(self.job)
        self.world.cycle()
        self.world.clock.advance(2 * CHECK_SECONDS)
        self.world.cycle()

    @property
    def avoided(self) -> tuple[str, set[str]]:
        """By units to come, and by landing jobs that wait."""
        return (self.job.directory / "avoid.inc").read_text().partition("=")[2].strip(), self.job.avoids

    @property
    def alert(self) -> str:
        return str(fresh(self.request).alert_code)

    def recorded(self, event: str) -> list[dict[str, object]]:
        return [row.detail for row in DAGHistory.objects.filter(dag__workflow__request=self.request, event_type=event)]


@pytest.fixture(name="mixed")
def _mixed(world: World, monkeypatch: pytest.MonkeyPatch) -> Mixed:
    monkeypatch.setattr(pileup, "PILEUP_CACHE_SECONDS", 0)
    return Mixed(world)


def test_units_that_have_not_begun_land_where_the_pileup_is_by_now(mixed: Mixed) -> None:
    mixed.look()
    assert (left(mixed.world), mixed.avoided, mixed.alert) == (set(), ("", set()), ""), "it has not moved"
    mixed.move(CERN)
    assert (left(mixed.world), mixed.avoided, mixed.alert) == ({"mg_000000"}, (FNAL, {FNAL}), "")
    (leave,) = mixed.recorded(UNITS_LEAVE)
    assert (leave["units"], leave["jobs"]) == (["mg_000000"], 1)
    assert f"1 work unit at {FNAL} to land elsewhere: the pileup is no more" in str(leave["why"])
    mixed.look()
    assert [row["sites"] for row in mixed.recorded(PILEUP_LEFT)] == [[FNAL]], "it is said once"


def test_what_has_begun_where_the_pileup_was_goes_on(mixed: Mixed) -> None:
    mixed.world.schedd.waiting = [waiting("mg_000000", 0.1, FNAL, JobStatus=2)]
    mixed.move(CERN)
    assert (left(mixed.world), mixed.avoided, mixed.alert) == (set(), (FNAL, {FNAL}), "")


def test_units_whose_pileup_is_at_none_of_their_sites_are_an_alert_until_it_is_back(mixed: Mixed) -> None:
    mixed.move("T2_US_Purdue")
    assert (left(mixed.world), mixed.avoided, mixed.alert) == (set(), ("", set()), CODE), "no site is better than another"
    said = Event.objects.get(request=mixed.request, kind="alert", data__code=CODE).data["message"]
    assert said.startswith("1 work unit without a site that has the pileup; 1 work unit at T1_US_FNAL, 1 work unit at T2_CH_CERN")
    assert said.endswith(f"short of it by now: {FNAL}, {CERN}")
    mixed.move(FNAL, CERN)
    assert mixed.alert == ""


@pytest.mark.parametrize("why", ["no file is on disk at any site", "it is INVALID in DBS"])
def test_pileup_that_is_nowhere_is_an_alert_that_says_why(mixed: Mixed, why: str) -> None:
    if "INVALID" in why:
        mixed.world.sources[mixed.pileup].access_type = "INVALID"
    mixed.move()
    assert (mixed.alert, fresh(mixed.request).status) == (CODE, "active")
    assert why in Event.objects.get(request=mixed.request, kind="alert", data__code=CODE).data["message"]


@pytest.mark.parametrize("away", ["dbs", "rucio", "htcondor"])
def test_while_a_service_is_silent_nothing_is_concluded(mixed: Mixed, away: str) -> None:
    mixed.world.scripts[away].arm(Mode.DOWN, 5000)
    mixed.move("T2_US_Purdue")
    assert (left(mixed.world), mixed.avoided[0], CODE in mixed.alert) == (set(), "", False)
