"""Every operation of the apps' services as the scripted operators use it.

``driven()`` is what the stateful test asks for; a service that takes an actor and is neither in it nor in ``NOT_DRIVEN`` fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from dags_app.models import DAG, FailureRule
from dags_app.services import failure_rules
from dags_app.services.lost_queue import lost_queue_of, schedd_confirm_lost
from dags_app.services.stop import dag_hold, dag_release
from outputs_app.checks.cases import case_decide, decided_refused
from outputs_app.models import CaseAction, Effect
from outputs_app.services import effect_discard, effect_discard_refused, effect_retry_now
from requests_app import services
from requests_app.harvesting.jobs import harvest_decide, harvest_refused
from requests_app.models import CleanupPolicy, HarvestState, InputFile, Request, RequestGroup, Workflow
from requests_app.services import dags, decisions, derive, moving, stopping
from requests_app.services import groups as group_services
from requests_app.services.cleaning import clean_refused
from requests_app.services.decisions import request_set_steps
from requests_app.services.invalidation import invalidation_refused
from requests_app.services.release import Changes, ReleaseMode, release_refused
from requests_app.services.restart import restart_refused
from requests_app.work.overrides import Overrides
from sites_app import services as sites
from sites_app.models import Schedd, ScheddState, Site, SiteStatus
from tests.support.scripted.operation import Operation
from tests.support.scripted.schedd import OTHER

BY: dict[str, Any] = {"actor": "op", "reason": "by the test"}
#: Services that take an actor and are no operation of their own, or reach outside the scripted world.
NOT_DRIVEN = {
    "request_import": "taking documents in is what begins each life",
    "input_files_exclude": "what a release of a held request writes",
    "group_join": "what request_group and the import write",
    "fail_now": "the last step of request_fail",
    "lost_confirm": "what schedd_confirm_lost writes on a row",
    "request_set_sites": "input would wait for its site for ever; tests/requests_app/reqmgr2/test_following.py",
    "block_validate": "looks at the outside and changes nothing there; tests/requests_app/services/test_validating_again.py",
    "request_validate": "the same of all blocks",
    "schedd_adopt_strays": "is there for a restored database; tests/requests_app/lifecycle/test_restored_databases.py",
    "schedd_remove_strays": "no life leaves jobs that no row knows; tests/dags_app/services/test_orphans.py",
    "dag_leave_sites": "no life has jobs that wait at a site; tests/requests_app/lifecycle/test_unbegun.py",
    "case_remove": "there is a case only where something was lost outside; tests/requests_app/work/test_cutting.py",
    "lost_files_make_again": "the same, by name; tests/requests_app/services/test_lost_files.py",
    "removal_begin": "what these two write on cases",
    "recover": "what they write on a request that has completed",
    "keep_left_out": "what they write on one that completes early",
    "request_compare": "looks at DBS and Rucio and changes nothing; tests/outputs_app/reconciliation",
    "request_invalidate_files": "leaves the account as it is; tests/requests_app/services/test_invalidating_files.py",
    "request_force": "settles without proof what the schedd would prove; tests/requests_app/lifecycle/test_lost_queues.py",
    "request_keep": "is for what was rejected in ReqMgr2; tests/requests_app/reqmgr2/test_following.py",
    "campaign_describe": "is for people, nothing acts on it; tests/requests_app/pages/test_campaigns.py",
    "site_follow": "needs a Site Status Board; tests/sites_app/test_site_statuses.py",
    "request_set_pools": "as with sites; tests/requests_app/admission/test_placement.py",
    "schedd_check": "submits a canary, which the scripted schedd does not run; tests/pool/test_onboarding.py",
    "admission_limit_add": "what is admitted later is done later; tests/requests_app/api/test_admission.py",
    "admission_limit_change": "the same",
    "admission_limit_remove": "the same",
    "dead_letter_retry": "the retry of an effect, or of what is no request's; tests/requests_app/services/test_letters.py",
    "dead_letter_discard": "the same of its discard",
    "reconcile": "a cycle at another moment, which the machine chooses anyhow; tests/requests_app/lifecycle/test_reconciling.py",
    "alert_acknowledge": "says who has an alert, and changes no request; tests/requests_app/notifying",
    "alert_give_back": "the same",
    "alert_silence": "the same",
    "alert_unsilence": "the same",
    "request_watch": "the same",
    "request_unwatch": "the same",
    "channel_add": "the same",
    "channel_change": "the same",
    "channel_switch": "the same",
    "channel_remove": "the same",
    "channel_test": "the same",
    "route_add": "the same",
    "route_remove": "the same",
    "request_change": "several of the driven verbs in one transaction; tests/requests_app/api/test_request_verbs.py",
}
#: The rule that scripted operators own.
OWN_RULE = "ours"
_RULE: dict[str, Any] = {
    "name": OWN_RULE, "order": 5, "first_code": 8001, "last_code": None, "message": "", "step": "", "site": "",
    "category": "transient", "action": "retry", "cooloff_seconds": None, "memory_factor": None, "note": "",
}  # fmt: skip


def _operation(name: str, function: Callable[..., Any], why_not: Callable[[Any], str] | None = None, **more: Any) -> Operation:
    """On a request, by ``request=``."""
    return Operation(name, function, lambda request: function(request=request, **BY, **more), why_not)


def _release(
    name: str, mode: ReleaseMode | None = None, changes: Callable[[Request], Changes] = lambda _: Changes()
) -> Operation:
    release = services.request_release
    return Operation(name, release, lambda request: release(request=request, mode=mode, changes=changes(request), **BY))


def _clean(name: str, **more: bool) -> Operation:
    function = services.request_clean
    act = partial(function, **BY, **more)
    why_not = None if "accept_rest" in more else clean_refused
    return Operation(name, function, lambda request: act(request=request, confirm=request.request_name), why_not)


def _ban_one(request: Request) -> Changes:
    return Changes(site_bans=(Site.objects.order_by("name").values_list("name", flat=True)[0],))


def _leave_out(request: Request) -> Changes:
    workflow = Workflow.objects.filter(request=request).first()
    files = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True).order_by("-lfn")
    return Changes(excluded_files=tuple(files.values_list("lfn", flat=True)[:1]))


def _let_in(request: Request) -> None:
    """Whatever of its files is out."""
    files = InputFile.objects.filter(workflow__request=request, excluded_at__isnull=False).order_by("lfn")
    services.input_files_restore(request=request, lfns=list(files.values_list("lfn", flat=True)), **BY)


def _depend(request: Request) -> None:
    """On the oldest other one."""
    others = Request.objects.exclude(pk=request.pk).order_by("created_at").values_list("request_name", flat=True)
    services.request_depend(request=request, depends_on=list(others[:1]), **BY)


def _overrides(**values: Any) -> Callable[[Request], Changes]:
    return lambda _: Changes(overrides=Overrides(**values))


#: Operations on a request, by the name that the tally has.
ON_REQUESTS: Mapping[str, Operation] = {
    action.name: action
    for action in (
        _operation("submit", services.request_submit, decisions.submit_refused),
        _operation("abort", services.request_abort, decisions.abort_refused),
        _operation("flush", services.request_flush, derive.flush_refused),
        _operation("derive", services.request_derive),
        _operation("derive with what failed", services.request_derive, failed=True),
        _operation("hold", services.request_hold, decisions.hold_refused),
        _operation("stop", services.request_stop, stopping.stop_refused),
        _operation("drain", services.request_stop, mode=services.StopMode.DRAIN),
        _operation("move", services.request_move, moving.move_refused),
        _operation("move when its units are done", services.request_move, moving.move_refused, mode=services.StopMode.DRAIN),
        _operation("fail", services.request_fail, stopping.fail_refused),
        _operation("restart", services.request_restart, restart_refused),
        _operation("restart and clean up", services.request_restart, cleanup_policy=CleanupPolicy.IMMEDIATE_CLEANUP),
        _clean("clean", accept_dependents=True),
        _clean("clean: accept", accept_rest=True, accept_dependents=True),
        _operation("complete early", services.request_complete, decisions.complete_refused),
        _operation("invalidate", services.request_invalidate, invalidation_refused),
        _operation("raise", services.request_set_priority, decisions.priority_refused, priority=900_000),
        _operation("lower", services.request_set_priority, decisions.priority_refused, priority=1),
        _operation("group", services.request_group, in_group="together"),
        _operation("ungroup", services.request_group, group_services.group_refused),
        Operation("depend", services.request_depend, _depend),
        _operation("depend on nobody", services.request_depend, group_services.depend_refused),
        _operation("note", services.request_note, notes="ask the requestor first"),
        _operation("pin", services.request_pin, decisions.priority_refused, memory_mb=2500, jobs_per_work_unit=1),
        _operation("retry time", services.request_set_retries, effect_max_retry_seconds=3600),
        _operation("throttle", services.request_throttle, max_merge_groups=1),
        _operation("error limits", services.request_set_error_limits, decisions.priority_refused, error_max_rescue_attempts=2),
        _operation("unpin", services.request_pin, decisions.priority_refused),
        _operation("adaptive", decisions.request_set_adaptive, decisions.priority_refused, adaptive=True),
        _operation("not adaptive", decisions.request_set_adaptive, decisions.priority_refused, adaptive=False),
        _operation("steps", request_set_steps, steps=[{"fraction": 0.3, "priority": 50_000}, {"fraction": 0.9, "priority": 10}]),
        _operation("steps, confirmed", request_set_steps, steps=[{"fraction": 0.1, "priority": 500}], confirm=True),
        _operation("steps away", request_set_steps, steps=[]),
        _operation("release", services.request_release, release_refused),
        _release("release: rescue", ReleaseMode.RESCUE),
        _release("release: next round", ReleaseMode.NEXT_ROUND),
        _release("release: threshold", changes=_overrides(error_hold_threshold=1.0, error_max_rescue_attempts=2)),
        _release("release: memory", changes=_overrides(memory_mb=2500)),
        _release("release: too much memory", changes=_overrides(memory_mb=10**6)),
        _release("release: retries", changes=_overrides(retry_processing=5, retry_merge=0)),
        _release("release: site ban", changes=_ban_one),
        _release("release: without a file", changes=_leave_out),
        _release("release: accept", changes=lambda _: Changes(accept_excluded=True)),
        Operation("let files in", services.input_files_restore, _let_in),
        _release("release: impossible", ReleaseMode.RESCUE, _leave_out),
    )
}


def _dag(name: str, function: Callable[..., Any], why_not: Callable[[Any], str] | None = None) -> Operation:
    return Operation(name, function, lambda dag: function(dag=dag, **BY), why_not)


#: Operations on a DAG.
ON_DAGS: Mapping[str, Operation] = {
    action.name: action
    for action in (
        _dag("dag hold", dag_hold),
        _dag("dag release", dag_release),
        _dag("dag remove", dags.dag_remove),
        _dag("dag move", dags.dag_move),
        _dag("dag rescue", dags.dag_rescue, dags.rescue_refused),
    )
}


def _status(name: str, status: SiteStatus, hours: int = 0) -> Operation:
    def act(site: Site) -> None:
        until = timezone.now() + timedelta(hours=hours) if hours else None
        sites.site_change_status(site=site, status=status, drain_until=until, **BY)

    return Operation(name, sites.site_change_status, act, retold=frozenset({"sites"}) if hours else frozenset())


def _ban(name: str, *, own: bool = False, insist: bool = False) -> Operation:
    """For all, or for the newest request; prolonged when it is asked for again."""

    def act(site: Site) -> None:
        workflow = Workflow.objects.order_by("-created_at").first() if own else None
        sites.site_ban_by_operator(site=site, workflow=workflow, insist=insist, **BY)

    return Operation(name, sites.site_ban_by_operator, act, retold=frozenset({"site_bans"}))


#: Operations on a site.
ON_SITES: Mapping[str, Operation] = {
    action.name: action
    for action in (
        _status("site enable", SiteStatus.ENABLED),
        _status("site disable", SiteStatus.DISABLED),
        _status("site drain", SiteStatus.DRAINING),
        _status("site drain until", SiteStatus.DRAINING, hours=1),
        _ban("site ban"),
        _ban("site ban, insisting", insist=True),
        _ban("site ban for one", own=True),
        Operation(
            "site note", sites.site_note, lambda site: sites.site_note(site=site, notes={"asked": "the site's own people"}, **BY)
        ),
        Operation("site unban", sites.site_unban_by_operator, lambda site: sites.site_unban_by_operator(site=site, **BY)),
    )
}


def _schedd(name: str, state: ScheddState) -> Operation:
    change = sites.schedd_change_state
    return Operation(name, change, lambda schedd: change(schedd=schedd, state=state, **BY))


#: Operations on a schedd.
ON_SCHEDDS: Mapping[str, Operation] = {
    action.name: action
    for action in (
        _schedd("schedd enable", ScheddState.ENABLED),
        _schedd("schedd drain", ScheddState.DRAINING),
        _schedd("schedd disable", ScheddState.DISABLED),
        Operation("schedd drain, moving", sites.schedd_drain, lambda schedd: sites.schedd_drain(schedd=schedd, move=True, **BY)),
    )
}

#: On a schedd: an operator gives up the DAGs that it has lost.
SCHEDD_LOST = Operation(
    "schedd lost",
    schedd_confirm_lost,
    lambda schedd: schedd_confirm_lost(schedd=schedd, **BY),
    lambda schedd: lost_queue_of(schedd).refusal,
)

#: On an effect; a pending one is made due by each word, at that moment.
EFFECT_RETRY = Operation(
    "effect retry",
    effect_retry_now,
    lambda effect: effect_retry_now(effect=effect, **BY),
    retold=frozenset({Effect._meta.db_table}),
)
EFFECT_DISCARD = Operation(
    "effect discard", effect_discard, lambda effect: effect_discard(effect=effect, **BY), effect_discard_refused
)


def _case(name: str, action: CaseAction) -> Operation:
    return Operation(name, case_decide, lambda case: case_decide(case=case, action=action, **BY), decided_refused)


#: On an integrity case; to register again is to make calls again that were answered: tests/outputs_app/api/test_cases.py.
ON_CASES = (_case("case recovered", CaseAction.RECOVERED), _case("case accept", CaseAction.ACCEPTED))


def _harvest(name: str, state: HarvestState) -> Operation:
    act = partial(harvest_decide, state=state, **BY)
    return Operation(name, harvest_decide, lambda harvest: act(harvest=harvest), harvest_refused, retold=frozenset({"harvests"}))


#: On a harvest; each word sets its time anew.
ON_HARVESTS = (_harvest("harvest retry", HarvestState.WAITING), _harvest("harvest discard", HarvestState.DISCARDED))


def rule_say(word: str) -> str:
    """What an operator does to a failure rule of their own: change, off, on, remove; it is added when it is not there.

    Returns the service's name.
    """
    row = FailureRule.objects.filter(name=OWN_RULE).first()
    if row is None:
        failure_rules.failure_rule_add(**_RULE, **BY)
        return "failure_rule_add"
    if word == "change":
        values = {**_RULE, "cooloff_seconds": (row.cooloff_seconds or 0) + 60}
        failure_rules.failure_rule_change(row=row, **values, **BY)
        return "failure_rule_change"
    if word == "remove":
        failure_rules.failure_rule_take_back(row=row, **BY)
        return "failure_rule_take_back"
    failure_rules.failure_rule_enable(row=row, enabled=word == "on", **BY)
    return "failure_rule_enable"


RULE_WORDS = ("change", "off", "on", "remove")
#: Everything that is asked through ``asking.ask``.
ASKED: tuple[Operation, ...] = (
    *ON_REQUESTS.values(), *ON_DAGS.values(), *ON_SITES.values(), *ON_SCHEDDS.values(), SCHEDD_LOST, EFFECT_RETRY,
    EFFECT_DISCARD, *ON_CASES, *ON_HARVESTS,
)  # fmt: skip


def dissolve() -> str:
    """The only group there is; returns the service's name."""
    services.group_dissolve(group=RequestGroup.objects.get(), **BY)
    return "group_dissolve"


def driven() -> set[str]:
    """Names of the services that the machine uses."""
    rules = {name for name in vars(failure_rules) if name.startswith("failure_rule_") and name != "failure_rule_problem"}
    return {action.function.__name__ for action in ASKED} | rules | {"request_receive", "group_dissolve"}


def dags_of(request: Request) -> list[DAG]:
    """Its DAGs, the newest first."""
    return list(DAG.objects.filter(workflow__request=request).order_by("-created_at"))


def schedd_of_the_world() -> Schedd:
    """The first one."""
    return Schedd.objects.exclude(name=OTHER).get()


def other_schedd() -> Schedd:
    """The second one."""
    return Schedd.objects.get(name=OTHER)
