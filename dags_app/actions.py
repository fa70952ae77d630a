"""Operations on DAGs, on failure rules, and on a schedd whose queue is lost; and how many DAGs an operation on a site or
schedd concerns.

Removing and rescuing a DAG decide on its request: ``requests_app.actions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import sites_app.actions  # noqa: F401  declares what is extended here
from dags_app.models import DAG, LIVE_DAG, FailureAction, FailureCategory, FailureRule
from dags_app.selectors import dags_shown
from dags_app.services.failure_rules import (
    failure_rule_add,
    failure_rule_change,
    failure_rule_enable,
    failure_rule_take_back,
    switch_refused,
    take_back_refused,
)
from dags_app.services.leave_site import dag_leave_sites, leave_preview, leave_refused
from dags_app.services.lost_queue import lost_queue_of, schedd_confirm_lost
from dags_app.services.onboarding import schedd_check
from dags_app.services.orphans import schedd_remove_strays, strays_preview, strays_refused
from dags_app.services.stop import dag_hold, dag_release, steer_refused
from sites_app.models import Schedd, Site
from wms2.actions import Action, Field, Kind, ResourceType, declare, extend, preview_each, sites
from wms2.adapters.types import JobStatus
from wms2.web.formatting import counted

extend(
    Site,
    reported=lambda site: [f"{counted(DAG.objects.filter(status__in=LIVE_DAG).count(), 'DAG')} live now; they are not touched."],
    of=("enable", "drain", "disable", "maintenance"),
)


def _lost(schedd: Schedd) -> list[str]:
    found = lost_queue_of(schedd)
    if found.refusal:
        return found.words()
    dags = counted(len(found.affected), "DAG")
    return [
        *found.words(),
        f"{dags} given up for good: what is done in them for certain is counted, their requests are held (queue lost).",
        "A release then plans what is left anew. Should a DAG of these come back into a queue, it is removed.",
    ]


def _lost_seen(schedd: Schedd) -> tuple[str, str]:
    affected = lost_queue_of(schedd).affected
    return " ".join(sorted(str(row.dag.pk) for row in affected)), f"{counted(len(affected), 'DAG')} suspected lost"


def _strays(schedd: Schedd) -> list[str]:
    kept = "What they wrote stays where it is. After a restored database adopt first what can be adopted."
    return [*strays_preview(schedd), f"They are removed and cannot be brought back. {kept}"]


def strays_seen(schedd: Schedd) -> tuple[str, str]:
    found = [each["dag_id"] for each in schedd.orphans_reported]
    return " ".join(sorted(found)), f"jobs of {counted(len(found), 'unknown DAG')}"


extend(
    Schedd,
    Action(
        "lost", "Confirm lost",
        "An operator's confirmation that the schedd's queue is lost. Refused without evidence. What is done counts, the affected"
        " requests are held; answers with what was confirmed.",
        schedd_confirm_lost, preview_each(_lost), refused=lambda schedd: lost_queue_of(schedd).refusal, seen=_lost_seen,
        path="confirm-lost", dangerous=True, stops=True,
    ),
    Action(
        "remove-strays", "Remove strays",
        "Remove the jobs of ours there that no live DAG knows, as two looks have found them; DAGMans first.",
        schedd_remove_strays, preview_each(_strays), refused=strays_refused, seen=strays_seen, path="remove-strays",
        dangerous=True, stops=True, outside=True,
    ),
    Action(
        "check", "Check",
        "Have its checks run, and if these are right a small canary DAG, which makes no output; they must pass before it is"
        " enabled. Repeatable.",
        schedd_check,
        refused=lambda s: "It is being checked." if s.onboardings.filter(ended_at=None).exists() else "", path="check",
    ),
    reported=lambda schedd: [f"{counted(schedd.dags.filter(status__in=LIVE_DAG).count(), 'DAG')} there now."],
    of=("enable", "drain", "disable"),
)  # fmt: skip


def _is_held(dag: DAG) -> bool:
    return bool(dag.observed.get("job_status") == JobStatus.HELD)


def _dag_seen(dag: DAG) -> tuple[str, str]:
    held = _is_held(dag) and not steer_refused(dag)
    return (f"{dag.status} held", f"{dag.get_status_display()}, on hold") if held else (dag.status, dag.get_status_display())


def _hold(dag: DAG) -> list[str]:
    inner = counted(int(dag.observed.get("units_running") or 0), "inner one")
    return [
        f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name}, its {inner} and their jobs"
        " that wait for a slot are put on hold. Jobs that run go on.",
        f"{dag.workflow.request_id} stays Active and alerts until the DAG is released. Nothing is lost.",
    ]


def _release(dag: DAG) -> list[str]:
    return [
        f"DAGMan job {dag.dagman_cluster_id} at {dag.schedd_name}, its inner ones and the jobs that people hold are released;"
        " those that HTCondor itself holds are not.",
        "Each DAGMan reads its log again and goes on; HTCondor may let it wait some minutes before.",
    ]


declare(
    ResourceType(
        DAG, "dag", "dag", lambda key: dags_shown().filter(pk=key), _dag_seen, "dags/<uuid:pk>",
        fitting=lambda dag: ("release", "remove") if _is_held(dag) else ("hold", "leave-sites", "rescue"),
    ),
    Action(
        "hold", "Hold", "Pause a DAG: its DAGMan jobs are held, jobs that run go on.", dag_hold, preview_each(_hold),
        refused=steer_refused, path="hold", stops=True, inverse="release",
    ),
    Action(
        "release", "Release", "Let a paused DAG go on.", dag_release, preview_each(_release), refused=steer_refused,
        path="release", inverse="hold",
    ),
    Action(
        "leave-sites", "Leave sites",
        "Have work units of which no job has begun land at other sites of theirs, now. A unit of which one runs or ended stays.",
        dag_leave_sites, preview_each(leave_preview),
        (
            sites("sites", "those to leave, separated by spaces; without any: those at which jobs wait and none runs"),
            Field(
                "units", Kind.TEXTS, "these alone, e.g. mg_000012, separated by spaces; also at sites where other jobs run",
                length=100, most_items=200,
            ),
        ),
        refused=leave_refused, path="leave-sites",
    ),
)  # fmt: skip

#: What an operator may set of a rule.
_RULE = (
    Field(
        "order", Kind.WHOLE, "lower ones are tried first; the first match decides", required=True, least=0, most=1_000_000
    ),
    Field("first_code", Kind.WHOLE, "exit code, or the first of a range", blank=None),
    Field("last_code", Kind.WHOLE, "last exit code of the range; empty: only the one", blank=None),
    Field("message", help="regular expression, searched for in the message", length=500, blank=""),
    Field("step", help="regular expression, searched for in the step's name", length=200, blank=""),
    Field("site", help="regular expression, searched for in the site's name", length=200, blank=""),
    Field("category", Kind.CHOICE, "the class of failures", required=True, choices=tuple(FailureCategory.choices)),
    Field("action", Kind.CHOICE, "what is done about it", required=True, choices=tuple(FailureAction.choices)),
    Field("cooloff_seconds", Kind.WHOLE, "before the first retry; empty: as configured", least=0, blank=None),
    Field("memory_factor", Kind.NUMBER, "so many times the memory, up to what sites offer", blank=None),
    Field("note", help="what it means", rows=2, blank=""),
)  # fmt: skip
_NAME = Field("name", help="stands in post.json and in the errors of requests", required=True, length=100)


def _values(row: FailureRule) -> Mapping[str, Any]:
    return {one.name: getattr(row, one.name) for one in _RULE}


def _add(row: FailureRule, actor: str, reason: str, **values: Any) -> None:
    failure_rule_add(actor=actor, reason=reason, **values)


def _rule_action(name: str, label: str, does: str, service: Any, **more: Any) -> Action:
    when = "It holds for DAGs that are planned from now on; those that run keep the rules they were planned with."
    return Action(name, label, f"{does} {when}", service, **more)


declare(
    ResourceType(
        FailureRule, "failure-rule", "row", lambda name: FailureRule.objects.filter(name=name),
        lambda row: (row.updated_at.isoformat(), "on" if row.enabled else "off"),
    ),
    _rule_action(
        "change", "Change", "The rule becomes the operators': later releases leave it alone.", failure_rule_change,
        fields=_RULE, initial=_values, single=True, inverse="change",
    ),
    _rule_action(
        "copy", "Add one like it", "A new rule with the values below.", _add, fields=(_NAME, *_RULE), initial=_values,
        single=True, inverse="take-back",
    ),
    _rule_action(
        "enable", "Switch on", "The rule is tried.", partial(failure_rule_enable, enabled=True),
        refused=partial(switch_refused, enabled=True), inverse="disable",
    ),
    _rule_action(
        "disable", "Switch off", "The rule is passed over.", partial(failure_rule_enable, enabled=False),
        refused=partial(switch_refused, enabled=False), inverse="enable",
    ),
    _rule_action(
        "take-back", "Take back", "The rule is removed; a shipped one comes back as shipped.", failure_rule_take_back,
        refused=take_back_refused,
    ),
)  # fmt: skip
