"""Files are lost at any moment of requests that read each other, again and again, while processes die and services fail.

In the end every piece of work is in one valid file of each output, and nothing valid was made from what is not.
``WMS2_LOSSES=100-150`` looks for new ways; a failure prints its steps.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from outputs_app.models import CaseState, IntegrityCase, OutputFile, Validity
from requests_app.lifecycle.packing import dags_pack, requests_archive
from requests_app.models import DONE, InputFile, Request, RequestStatus
from requests_app.services import request_hold, request_release
from requests_app.services.cases import case_remove
from requests_app.services.lost_files import lost_files_make_again, lost_files_plan
from tests.support.scripted import dagman, documents, invariants, made_again
from tests.support.scripted.faults import Mode
from tests.support.scripted.made_again import fresh, published, valid
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition

QUICK = "tests/requests_app/services/test_lost_files.py"
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.deep(f"{QUICK}::test_what_replaces_lost_input_is_read_when_nothing_is_left_that_was_made_from_any_of_it"),
]
WORLD = made_again.WORLD
BY: dict[str, Any] = {"actor": "olga", "reason": "the disk is gone"}
FIRST, _, LAST = os.environ.get("WMS2_LOSSES", "14-18").partition("-")
SPLITS = [{"files_per_job": 1}, {"files_per_job": 2}, {"events_per_job": 70}, {"events_per_job": 200}, {"lumis_per_job": 7}]
POINTS = (*made_again.POINTS, "plan.claimed", "plan.called", "plan.recorded", "submit.called")
#: Cycles in which all must be complete.
MOST_CYCLES = 60


class Losing:
    """A first request and those that read the one before, and what happens to them; each step by chance."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)
        self.requests: list[Request] = []

    def begin(self, way: str, seed: int) -> None:
        """All are complete, but for the last, which may be at any point of its work."""
        self.requests = [self.world.request(made_again.document(self.world, way, seed, 700))]
        self.finish()
        by_lumi = way in ("generated", "lumis")  # others' files name no lumis
        for left in reversed(range(self.chance.choice([1, 1, 2]))):
            split = self.chance.choice(SPLITS if by_lumi else SPLITS[:-1])
            by_lumi = False
            child = self.world.request(documents.reprocessing(published(self.world, self.requests[-1]), **split))
            self.requests.append(child)
            print(f"reads what was made so far by {split}")
            if not left and self.chance.random() < 0.7:
                for _ in range(self.chance.randint(0, 3)):
                    self.cycle()
            else:
                self.finish()

    def step(self) -> None:
        """Anything."""
        steps: Sequence[Callable[[], object]] = (
            self.lose, self.lose, self.cycle, self.cycle, self.units_end, self.units_fail, self.dags_end, self.a_part,
            self.dies, self.hold, self.archive, self.service_fails,
        )  # fmt: skip
        step = self.chance.choice(steps)
        print(step.__name__, [str(fresh(request).status) for request in self.requests], step() or "")
        invariants.check(self.world)

    def lose(self) -> str:
        """Files of any request, mostly valid ones, sometimes others' as well; asked for once or twice, and never done twice."""
        files = OutputFile.objects.all() if self.chance.random() < 0.3 else OutputFile.objects.filter(validity=Validity.VALID)
        lfns = list(files.order_by("lfn").values_list("lfn", flat=True))
        lost = self.chance.sample(lfns, min(len(lfns), self.chance.choice([1, 1, 2, 4])))
        if self.chance.random() < 0.3:
            lost += ["/store/data/foreign.root", InputFile.objects.order_by("lfn")[0].lfn]
        plan = lost_files_plan(lost)
        for _ in range(self.chance.choice([1, 2]) if plan.requests else 0):
            lost_files_make_again(lfns=lost, confirm=plan.confirm, **BY)
        gone = {lfn for each in plan.requests for lfn in each.files}
        assert not gone & {lfn for each in lost_files_plan(lost).requests for lfn in each.files}, "asked for again"
        return f"{[(each.request.request_name, len(each.files)) for each in plan.requests]}, {plan.refused} {plan.left}"

    def cycle(self) -> None:
        """Each request reads what those before it have in DBS now."""
        for request in self.requests[:-1]:
            published(self.world, request)
        self.world.cycle()
        self.world.clock.advance(60)

    def units_end(self) -> None:
        for job in self.world.schedd.live:
            for unit in job.open_nodes[:1]:
                self.world.schedd.unit_done(job, unit)
        self.cycle()

    def units_fail(self) -> None:
        for job in self.world.schedd.live:
            for unit in job.open_nodes[-1:]:
                self.world.schedd.unit_failed(job, unit)
        self.cycle()

    def dags_end(self) -> None:
        for job in self.world.schedd.live:
            self.world.schedd.end(job, End.FINISHED)
        self.cycle()

    def a_part(self) -> None:
        """Of a cycle."""
        self.world.evaluate(self.chance.choice(self.requests), steps=self.chance.choice([1, 2]))
        self.world.effects(self.chance.choice([1, 3]))

    def dies(self) -> None:
        """The next process that comes to a point."""
        self.world.crash_at = self.chance.choice(POINTS)

    def hold(self) -> str:
        try:
            request_hold(request=fresh(self.chance.choice(self.requests)), **BY)
        except InvalidTransition as error:
            return str(error)
        return ""

    def archive(self) -> str:
        self.world.clock.advance(8 * 86_400)
        dags_pack()
        return f"{requests_archive()} archived"

    def service_fails(self) -> None:
        service = self.chance.choice(["dbs", "rucio", "htcondor"])
        self.world.scripts[service].arm(self.chance.choice([*Mode]), self.chance.choice([1, 2]))

    def finish(self) -> None:
        """Faults stop, an operator removes what validation has found, and releases what is held."""
        self.world.heal()
        self.world.retry_effects()
        for _ in range(MOST_CYCLES):
            self.dags_end()
            self.requests = [fresh(request) for request in self.requests]
            if all(request.status in DONE for request in self.requests):
                return
            while (case := IntegrityCase.objects.filter(state=CaseState.NEW).order_by("pk").first()) is not None:
                print(f"found of {case.request}: {case.name} {case.prognosis}")
                case_remove(case=case, **BY)
            for request in Request.objects.filter(status=RequestStatus.HELD):
                print(f"held: {request} {request.hold_code} {request.hold_reason}")
                request_release(request=request, mode=None, **BY)
        raise AssertionError([(each.request_name, each.status, each.waiting_for) for each in self.requests])

    def all_is_whole(self, *, tells: bool) -> None:
        """Of each request, and each has read what the one before has now."""
        invariants.check(self.world)
        for request in self.requests if tells else ():
            made_again.assert_whole(self.world, request)
        gone = set(OutputFile.objects.filter(validity=Validity.INVALID).values_list("lfn", flat=True))
        parents = {lfn for request in self.requests for file in valid(request) for lfn in file.parents}
        assert not parents & gone, "made from what is invalid"
        for parent, child in pairwise(self.requests):
            now = {file.lfn for file in valid(parent) if file.dataset.name == child.workflow.input_dataset}
            read = InputFile.objects.filter(workflow=child.workflow, excluded_at__isnull=True).values_list("lfn", flat=True)
            assert set(read) == now, "not what is there now"


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_whatever_is_lost_when_all_is_made_again_once(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    merges = made_again.Merges()
    monkeypatch.setattr(dagman, "write_manifest", merges.write)
    losing = Losing(world, seed)
    way, merges.seed = losing.chance.choice(["generated", "lumis", "events", "files"]), seed
    merges.tells = losing.chance.random() < 0.8
    losing.begin(way, seed)
    for _ in range(losing.chance.randint(3, 14)):
        losing.step()
    losing.finish()
    losing.all_is_whole(tells=merges.tells)
