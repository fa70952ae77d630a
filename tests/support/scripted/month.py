"""A month beside CMS's services: requests of two teams in a simulated ReqMgr2, each with a fate, and neighbours that act as those
do. Every act is counted by who does it; after each step nothing of ours may be lost, unprotected or in danger without a word.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from django.db.models import Sum
from rucio.common.exception import DataIdentifierNotFound

from dags_app.models import WorkUnit, WorkUnitState
from deploy.simulators.reqmgr2 import others, updates
from deploy.simulators.reqmgr2.creation import Requestor
from deploy.simulators.reqmgr2.outputs import compute
from deploy.simulators.reqmgr2.service import AGENT_DN
from deploy.simulators.reqmgr2.states import ACTIVE, allowed
from deploy.simulators.reqmgr2.updates import store_changes
from outputs_app.effects.source_rules import source_rules_check
from outputs_app.models import RULED, SETTLED_EFFECT, Effect, EffectState, OutputFile
from requests_app.models import HoldCode, ReqMgr2Request, Request, RequestStatus
from requests_app.reqmgr2.following import reqmgr2_poll
from requests_app.services import request_clean, request_keep, request_release
from requests_app.work.unmerged import UNPROTECTED
from tests.support import simulator_world
from tests.support.neighbours import MSOutput, RuleCleaner
from tests.support.reqmgr2_world import TEAM, Outside
from tests.support.scripted import documents, invariants
from tests.support.scripted.catalogues import ScriptedRucio
from tests.support.scripted.losses import followed
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.runtime.circuits import circuits

S = RequestStatus
THEIRS = "production"
TAPE = "T1_US_FNAL_Tape"
CONFIGS = {"1" * 32: ("RAWSIMoutput", "GEN-SIM"), "2" * 32: ("AODSIMoutput", "AODSIM"), "3" * 32: ("AODoutput", "AOD")}
#: What befalls requests of ours, one each; the others are left alone.
FATES = (
    "cannot be split", "agents pull", "queue is first", "forced", "rejected: clean", "aborted", "rejected: keep", "forced early",
    "aborted before", "beside us", "input", "priority", "sites", "unit fails", "report refused",
)  # fmt: skip
BY: dict[str, Any] = {"actor": "olga", "reason": "as the runbook says"}
_ENDS = ("normal-archived", "aborted-archived", "rejected-archived")


class Client:
    """What neighbours call in Rucio, as its own client has it."""

    def __init__(self, rucio: ScriptedRucio) -> None:
        self._rucio = rucio

    def list_accounts(self) -> list[dict[str, str]]:
        return []

    def add_account(self, *_: str) -> None: ...

    def set_local_account_limit(self, *_: Any) -> None: ...

    def get_did(self, scope: str, name: str) -> None:
        if name not in self._rucio.containers:
            raise DataIdentifierNotFound(name)

    def add_replication_rule(self, dids: list[dict[str, str]], copies: int, rse: str, *, account: str, **_: str) -> list[str]:
        return [self._rucio.rule_of_others(account, each["name"], rse) for each in dids]

    def list_content(self, scope: str, name: str) -> list[dict[str, str]]:
        return [{"name": block} for block in sorted(self._rucio.containers.get(name, ()))]

    def list_did_rules(self, scope: str, name: str) -> list[dict[str, str]]:
        ours = [{"id": ids[0], "account": conf().rucio_account} for key, ids in self._rucio.rules.items() if key[0] == name]
        return ours + [{"id": r.rule_id, "account": r.account} for r in self._rucio.others.values() if r.name == name]

    def update_replication_rule(self, rule_id: str, options: dict[str, Any]) -> None:
        assert rule_id in self._rucio.others, f"a neighbour ends {rule_id}, which is ours"
        self._rucio.others[rule_id].ends = options["lifetime"] == 0


class Month:
    """``requests`` of our team and a third as many of another one."""

    def __init__(self, world: World, outside: Outside, patch: pytest.MonkeyPatch, requests: int) -> None:
        self.world, self.outside, self.acts = world, outside, Counter[tuple[str, str]]()
        self._random, self._service = Random(requests), outside.simulators.application.reqmgr2
        for module in (others, updates):  # the simulated services' clock is the world's
            patch.setattr(module, "time", SimpleNamespace(time=lambda: world.clock.now().timestamp()))
        outside.habits(no_agents=[TEAM], agents_seconds=300.0, settle_seconds=600.0, close_seconds=86_400.0)
        for identifier, (module, tier) in CONFIGS.items():
            simulator_world.put_config(outside.simulators, identifier, **{module: (tier, "")})
        self.fates: dict[str, str] = {}
        self.theirs: set[str] = set()
        self.placed: dict[str, int] = {}  # MSOutput's documents: requests -> containers that it has made rules on
        self.acted: set[str] = set()
        self._unprotected: set[str] = set()  # a step before
        befall = [*FATES, *[""] * len(FATES)]
        self._coming = [*(befall[number % len(befall)] for number in range(requests)), *["theirs"] * (requests // 3)]
        self._random.shuffle(self._coming)

    # --- how it goes on

    def live(self, steps: int, hours: float, arriving: int) -> None:
        """Until all is at its end, ``steps`` of so many hours at most; so many requests come with each."""
        for step in range(steps):
            self._arrive(arriving)
            self._stage()
            self._wms2()
            self._progress()
            self._neighbours()
            self._operator()
            self._nothing_is_lost(whole=step % 16 == 15)
            self.world.clock.advance(hours * 3600)
            if not self._coming and not self._documents(*ACTIVE):
                break
        for _ in range(2):  # the source rules end
            self.world.clock.advance(3 * 86_400)
            self._wms2()
            self._neighbours()
            self._nothing_is_lost(whole=True)

    def _arrive(self, number: int) -> None:
        for _ in range(min(number, len(self._coming))):
            fate = self._coming.pop()
            document = documents.generation(300 if fate else self._random.choice([100, 200, 300]))
            if fate == "input" or (not fate and self._random.random() < 0.5):
                shared = f"Shared{self._random.randrange(3)}"
                dataset = f"/{shared}/Era-v1/RAW"
                if dataset not in self.world.sources:
                    self.world.source(shared, 100, 120, 80, 50)
                document = documents.reprocessing(dataset, files_per_job=2)
            document |= {"Team": THEIRS if fate == "theirs" else TEAM}
            found = compute(document, {}, partial(self.outside.simulators.application.couch.find, "reqmgr_config_cache"))
            reported = {"OutputDatasets": found.datasets, "OutputModulesLFNBases": found.lfn_bases, "Team": document["Team"]}
            name = self.outside.stage("assigned", document, **reported)
            self.theirs.add(name) if fate == "theirs" else self.fates.update({name: fate})

    def _documents(self, *statuses: str) -> dict[str, dict[str, Any]]:
        self._service.move_on()
        self._service.store.by_view("bystatus", statuses)  # a view answers as of the question before
        return self._service.store.by_view("bystatus", statuses)

    def _status(self, name: str) -> str:
        return str(self._service.store.by_names([name])[name]["RequestStatus"])

    def _move(self, name: str, who: str, *steps: str, act: str = "") -> None:
        """A neighbour, or people, take steps that ReqMgr2 allows."""
        for status in steps:
            with self._service.store.changing(name) as document:
                assert allowed(document["RequestStatus"], status), (name, document["RequestStatus"], status)
                store_changes(
                    document, {"RequestStatus": status}, Requestor("agent", "/CN=pdmv" if who == "people" else AGENT_DN)
                )
        self._count(who, act or steps[-1], name)

    def _count(self, who: str, act: str, name: str) -> None:
        if name not in self.theirs:
            self.acts[who, act] += 1

    def _stage(self) -> None:
        """MSTransferor and MSMonitor; then, of some, the work queue comes before WMS2 does."""
        for name in self._documents("assigned"):
            self._move(name, "MSTransferor", "staging", "staged", act="input placed, staged")
        late = [name for name in self._documents("staged") if self.fates.get(name) == "queue is first" and name not in self.acted]
        for name in self._documents("staged"):
            if self.fates.get(name) == "aborted before":
                self._move(name, "people", "aborted", act="aborted before it was taken")
                self.acted.add(name)
        if late:
            self.world.clock.advance(400)
            self._service.move_on()
            self.acted.update(late)
            for name in late:
                self._count("work queue", "took it first, no agent pulls it", name)

    def _wms2(self) -> None:
        circuits().clear()
        assert reqmgr2_poll(force=True)
        for name in sorted(self.fates.keys() - self.acted):  # what was acquired just now is soon running there
            if self._befall(name, self.fates[name]):
                self.acted.add(name)
        self.world.cycle()
        self.world.effects(1000)

    def _progress(self) -> None:
        for job in followed(self.world):
            name = job.request_name
            if self.fates.get(name) == "unit fails" and name not in self.acted and len(job.open_nodes) > 1:
                self.world.schedd.unit_failed(job, job.open_nodes[0])
                self.acted.add(name)
            elif job.open_nodes:
                self.world.schedd.unit_done(job, job.open_nodes[0])
            if not job.open_nodes or (job.halted and self._random.random() < 0.5):
                self.world.schedd.end(job, End.DRAINED if job.halted and job.open_nodes else End.FINISHED)
        self.world.cycle()
        self.world.effects(1000)

    def _befall(self, name: str, fate: str) -> bool:
        """Whether it has happened."""
        status = self._status(name)
        runs = status in ("running-open", "running-closed")
        request = Request.objects.filter(request_name=name).first()
        match fate:
            case "" | "input" | "unit fails":
                return fate != "unit fails"
            case "priority" if runs:
                self.outside.put(name, RequestPriority=123_456)
                self._count("people", "priority changed", name)
            case "sites" if status in ("acquired", "running-open"):
                self.outside.put(name, SiteWhitelist=["T1_US_FNAL", "T2_CH_CERN"])
                self._count("people", "site list changed", name)
            case "aborted" if runs:
                self._move(name, "people", "aborted", act="aborted while it runs")
            case "beside us" if request is not None and request.status == S.ACTIVE:
                self.outside.agents_take(name)
                self._count("work queue", "has it beside us", name)
            case "forced" if runs and WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.DONE).exists():
                self._move(name, "Unified", "force-complete", act="forced, part of it done")
            case "forced early" if status in ("running-open", "running-closed"):
                self._move(name, "Unified", "force-complete", act="forced, nothing done")
            case "rejected: clean" | "rejected: keep" if status in ("completed", "closed-out", "announced"):
                self._move(name, "Unified", "rejected", act=f"rejected when {status}")
            case "cannot be split" if status in ("acquired", "staged"):
                self._move(name, "work queue", "failed", act="cannot split it: failed")
            case "agents pull" if status == "acquired":
                self._cancel(name)  # where the queue was first
                self._service._queue.add(name, TEAM, pulled=True)
                self._count("agents", "pull its element", name)
            case "report refused" if status == "running-closed":
                self.outside.habits(admins=["people"])
                self._count("ReqMgr2", "refuses our reports for a while", name)
            case _:
                return False
        return True

    # --- neighbours

    def _neighbours(self) -> None:
        for name, document in self._documents("acquired", "running-open", "running-closed").items():
            if name in self.theirs:  # agents run them
                step = {"acquired": "running-open", "running-open": "running-closed", "running-closed": "completed"}
                with self._service.store.changing(name) as changed:
                    changed["TotalInputLumis"] = 1
                self._move(name, "agents", step[document["RequestStatus"]])
        for name in self._documents("aborted", "force-complete"):
            self._cancel(name)
        client = Client(self.world.rucio)
        for name, document in self._documents("closed-out").items():
            if name not in self.placed:
                rules = [rule for container in document["OutputDatasets"] if (rule := MSOutput(client).place(container, TAPE))]
                self.placed[name] = len(rules)
                self._count("MSOutput", "rules on tape" if rules else "document without copies", name)
            else:
                self._move(name, "Unified", "announced", act="announced")
        self.world.rucio.transfer()
        for name, document in self._documents("announced", "rejected", "aborted-completed").items():
            ended = [rule for container in document["OutputDatasets"] for rule in RuleCleaner(client).clean(container)]
            assert not ended, f"{name}: MSRuleCleaner ends {ended}"
            if document["RequestStatus"] != "announced" or name in self.placed:
                after = {"announced": "normal-archived", "rejected": "rejected-archived"}
                self._move(name, "MSRuleCleaner", after.get(document["RequestStatus"], "aborted-archived"))
        wanted = {document.get("InputDataset") for document in self._documents(*ACTIVE).values()}
        wanted |= {document.get("InputDataset") for document in self._documents(*_ENDS).values()} if self._coming else set()
        for dataset, source in self.world.sources.items():
            if dataset not in wanted and source.locations:
                source.locations.clear()
                self.acts["MSRuleCleaner", "input of ended requests goes"] += 1
        source_rules_check()
        self.world.effects(1000)
        for _lfn, rse in self.world.rucio.clean():
            self.acts["Rucio", f"deletes a copy without a rule, {'tape' if rse == TAPE else 'disk'}"] += 1

    def _cancel(self, name: str) -> None:
        """The work queue's elements of a request, which then moves on."""
        couch = self.outside.simulators.application.couch
        for database, identifier in (("workqueue_inbox", name), ("workqueue", f"{name}-1")):
            if (document := couch.find(database, identifier)) is not None:
                couch._write(database, identifier, document["_rev"], body="{}", deleted=True)
                self._count("work queue", "cancels its elements", name)

    # --- an operator of WMS2, by the runbook

    def _operator(self) -> None:
        for request in Request.objects.filter(status=S.HELD):
            name, status = request.request_name, self._status(request.request_name)
            if request.hold_code == HoldCode.FAILED_ELSEWHERE and status == "failed":
                self._move(name, "people", "assigned", act="set back from failed")
            elif request.hold_code == HoldCode.FAILED_ELSEWHERE and status in ("assigned", "staging", "staged"):
                continue
            else:
                self._cancel(name)  # with those who run the agents
                self._count("operator", f"released: {request.hold_code}", name)
                request_release(request=request, **BY)
        for row in ReqMgr2Request.objects.exclude(problem="").exclude(request=None).select_related("request"):
            fate = self.fates[str(row.name)]
            if "clean it, or keep" in row.problem:
                keeps = fate == "rejected: keep"
                request_keep(request=row.request, **BY) if keeps else request_clean(request=row.request, confirm=row.name, **BY)
                self._count("operator", "kept" if keeps else "cleaned", str(row.name))
            elif "is ahead by" in row.problem:
                self._count("ReqMgr2", "ahead of us, steps", str(row.name))
        refused = Effect.objects.filter(state=EffectState.REFUSED)
        if refused.exists():
            self.outside.habits(admins=None)
            self.acts["operator", "reports tried again"] += refused.count()
            self.world.retry_effects()

    # --- what must hold

    def _nothing_is_lost(self, *, whole: bool) -> None:
        taken = Request.objects.filter(request_name__in=self.theirs)
        assert not taken.exists(), f"of another team, and ours: {list(taken)}"
        valid = set(OutputFile.objects.filter(validity="valid").values_list("lfn", flat=True)) & self.world.rucio.replicas.keys()
        lost = sorted(lfn for lfn in valid - self.world.dbs.invalid if not self.world.rucio.replicas[lfn])
        assert not lost, f"no rule keeps {lost}"
        protected = {"/".join(base.split("/")[:7]) for base in self._service.protected_lfns()}
        now = set[str]()
        for request in Request.objects.filter(status=S.ACTIVE):
            bases = self._service.store.by_names([request.request_name])[request.request_name]["OutputModulesLFNBases"]
            if not {"/".join(base.split("/")[:7]) for base in bases} <= protected:
                self._count("MSUnmerged", "may delete what it writes, steps", request.request_name)
                known = request.request_name not in self._unprotected or request.alert_code == UNPROTECTED
                assert known, f"MSUnmerged deletes {bases}: {request.alert_code!r}, {self.outside.steps(request.request_name)}"
                now.add(request.request_name)
        self._unprotected = now
        if whole:
            invariants.check(self.world)

    def check_the_end(self) -> None:
        """Each request of ours is where its fate leads, here and there, with all of its events or none."""
        spared = {fate for name, fate in self.fates.items() if fate and name not in self.acted}
        assert not spared, f"nothing befell those of {spared}"
        for name, fate in self.fates.items():
            request, there = Request.objects.filter(request_name=name).first(), self._status(name)
            wanted = _END.get(fate, (S.COMPLETED, "normal-archived"))
            here = request.status if request is not None else ""
            if fate == "aborted" and here == S.CLEANED:  # it had completed here before the abort was seen
                here = S.ABORTED
            assert (here, there) == wanted, f"{name} ({fate}) is {here}, {there}: {self.outside.steps(name)}"
            files = OutputFile.objects.filter(dataset__workflow__request=request) if request else OutputFile.objects.none()
            if self.placed.get(name) and here == S.COMPLETED:
                assert not files.filter(RULED).exists(), f"{name}: MSOutput has it on tape, and the source rules stay"
            if here == S.COMPLETED and not fate.startswith("forced"):
                for row in files.order_by().values("dataset__name").annotate(total=Sum("events")):
                    in_dbs = sum(
                        file.events
                        for block in self.world.dbs.registered.values()
                        if block.dataset == row["dataset__name"]
                        for file in block.files.values()
                    )
                    assert in_dbs == row["total"], f"{name}: {row} and {in_dbs} in DBS"
        owed = Effect.objects.exclude(state__in=SETTLED_EFFECT).values_list("key", "state", "last_error")
        assert not owed, f"still owed: {list(owed[:5])}"

    def table(self) -> str:
        """Who did what to requests of ours, and how often."""
        return "\n".join(f"{who:14} {act:42} {number:5}" for (who, act), number in sorted(self.acts.items()))


_END: dict[str, tuple[str, str]] = {
    "aborted": (S.ABORTED, "aborted-archived"),
    "aborted before": ("", "aborted-archived"),
    "rejected: clean": (S.CLEANED, "rejected-archived"),
    "rejected: keep": (S.COMPLETED, "rejected-archived"),
}
