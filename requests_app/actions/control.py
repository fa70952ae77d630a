"""Operations on what belongs to no request: limits, the life cycle's lease, the service's level, dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from requests_app.admission.placement import slots_used
from requests_app.limits import limit_set
from requests_app.models import LEADER_LEASE, AdmissionLimit, DeadLetter, DeadLetterKind, Lease, Limit, ServiceLevel
from requests_app.service_level import allow_refused, new_work_allow, new_work_stop, service_rows
from requests_app.services import admission_limits
from requests_app.services.dead_letters import ADVICE, dead_letter_discard, dead_letter_retry, discard_refused
from requests_app.services.decisions import MAX_PRIORITY
from requests_app.services.reconciling import reconcile
from wms2.actions import Action, Field, Kind, ResourceType, declare, preview_each
from wms2.conf import Limits, conf


def limit_rows(names: Sequence[str]) -> list[Limit]:
    """Limits by name. One that was never changed has no row yet; it can be changed all the same."""
    rows = {row.name: row for row in Limit.objects.filter(name__in=names)}
    known = [name for name in dict.fromkeys(names) if name in Limits.model_fields]
    return [rows.get(name) or Limit(name=name, value=getattr(conf().limits, name)) for name in known]


def _limit(row: Limit) -> list[str]:
    lines = [f"It is {row.value} now; its default is {getattr(conf().limits, row.name)}."]
    if description := Limits.model_fields[row.name].description:
        lines.append(f"It means: {description}.")
    if row.name == "max_active_dags":
        lines.append(f"{slots_used()} slots are in use. A lower limit stops none of them.")
    return lines


def _limit_set(limit: Limit, actor: str, reason: str, value: float) -> None:
    limit.value = limit_set(name=limit.name, value=value, actor=actor, reason=reason).value


declare(
    ResourceType(
        Limit, "limit", "limit", lambda name: limit_rows([name]), lambda limit: (str(limit.value), str(limit.value))
    ),
    Action(
        "change", "Change", "Change a limit at run time.", _limit_set, preview_each(_limit),
        (Field("value", Kind.NUMBER, "holds from the next cycle on, and over restarts", required=True),),
        initial=lambda limit: {"value": limit.value}, inverse="change",
    ),
)  # fmt: skip

declare(
    ResourceType(
        Lease, "lease", "lease", lambda name: Lease.objects.filter(name=name),
        lambda lease: (str(lease.epoch), f"{lease.owner or 'no owner'}, epoch {lease.epoch}"),
    ),
    Action(
        "reconcile", "Reconcile now",
        "Have the leader run a whole cycle now: observe all schedds, look for orphans, admit, evaluate every request. What was"
        " done is not repeated.",
        reconcile,
        refused=lambda lease: "" if lease.name == LEADER_LEASE else "Only the life cycle's lease has a leader.", single=True,
    ),
)  # fmt: skip

declare(
    ResourceType(
        ServiceLevel, "service", "service", lambda name: service_rows().filter(pk=name),
        lambda row: (f"{row.level} {row.stopped_at}", row.no_new_work or row.get_level_display()), "service/<name:pk>",
    ),
    Action(
        "stop-new-work", "No new work",
        "Start nothing new until it is allowed again: nothing is admitted or acquired from ReqMgr2; imports are stored. Queued"
        " requests wait, also between two rounds. What runs is finished, can be stopped, and is registered.",
        new_work_stop, path="stop-new-work", stops=True, inverse="allow-new-work",
    ),
    Action(
        "allow-new-work", "Allow new work", "Let new work start again, as far as the service's level does.", new_work_allow,
        preview_each(lambda row: [row.no_new_work or "New work may start.", "Queued requests start as slots are free."]),
        refused=allow_refused, path="allow-new-work", inverse="stop-new-work",
    ),
)  # fmt: skip


def _dead_letter(dead_letter: DeadLetter) -> list[str]:
    return [ADVICE[DeadLetterKind(dead_letter.kind)], f"Last error: {dead_letter.last_error}"]


declare(
    ResourceType(
        DeadLetter, "dead-letter", "dead_letter", lambda key: DeadLetter.objects.filter(pk=key),
        lambda row: (f"{row.attempts} {row.last_error}"[:200], row.get_kind_display()), "dead-letters/<schedd:pk>",
    ),
    Action(
        "retry", "Retry", "Have what is at an end of its retries tried again now.", dead_letter_retry, preview_each(_dead_letter),
        path="retry",
    ),
    Action(
        "discard", "Discard", "Give up what is at an end of its retries, or hear no more of it.", dead_letter_discard,
        preview_each(_dead_letter), refused=discard_refused, path="discard", dangerous=True,
    ),
)  # fmt: skip


STARTS = (
    Field("max_dags", Kind.WHOLE, "DAGs live at once; empty: any number", least=0, most=100_000),
    Field("rate_per_hour", Kind.NUMBER, "starts an hour; empty: any number", least=0.001, most=100_000),
    Field("burst", Kind.WHOLE, "starts that may be made at once after a quiet time; empty: 1", least=1, most=100_000),
    Field("hard", Kind.FLAG, "holds also while slots are free; else these are lent to whom it keeps", blank=None),
    Field("least_priority", Kind.WHOLE, "of a band alone: it goes up to the next higher band's", least=0, most=MAX_PRIORITY),
)


declare(
    ResourceType(
        AdmissionLimit, "admission-limit", "limit", lambda key: AdmissionLimit.objects.filter(pk=key),
        lambda limit: (f"{limit.max_dags} {limit.rate_per_hour} {limit.burst} {limit.least_priority} {limit.hard}",) * 2,
        "admission/limits/<int:pk>",
    ),
    Action(
        "set", "Set",
        "Set what a limit of admission says; what is not given is no limit, `hard` stays as it is. Nothing that runs is stopped.",
        admission_limits.admission_limit_change, None, STARTS,
        refused=admission_limits.change_refused, path="set", inverse="set",
        initial=lambda limit: {field.name: getattr(limit, field.name) for field in STARTS},
    ),
    Action(
        "add", "Add", "Give a band, a campaign or a requester limits of its own.", admission_limits.admission_limit_add,
        None,
        (Field("name", Kind.TEXT, "of the campaign or requester; of a band any, urgent: that of all urgent requests",
               required=True, length=100), *STARTS),
        refused=admission_limits.add_refused, path="add", single=True, inverse="remove",
    ),
    Action(
        "remove", "Remove", "Remove limits of its own; those of its kind hold again.", admission_limits.admission_limit_remove,
        refused=admission_limits.remove_refused, path="remove", inverse="add",
    ),
)  # fmt: skip
