"""Which verbs the rows have. Each calls the service that the REST interface calls; ``wms2.admin.verbs`` asks and shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django import forms

from dags_app.models import LIVE_DAG
from outputs_app.models import Effect, EffectState
from requests_app import foretell, services
from requests_app.limits import limit_set
from requests_app.models import Limit, Request
from requests_app.selectors.admission import admission_standing
from requests_app.services.effects import effect_retry_now
from requests_app.services.schedds import schedd_change_state
from sites_app.models import Schedd, ScheddState
from wms2.admin import ReasonForm, Verb, register_verbs
from wms2.conf import Conf, conf
from wms2.words import counted

Data = Mapping[str, Any]


class PriorityForm(ReasonForm):
    """A reason and the new priority."""

    priority = forms.IntegerField(min_value=0, max_value=999_999, help_text="Higher starts earlier; 0 to 999999.")
    field_order = ("priority", "reason")


class LimitForm(ReasonForm):
    """A reason and the new value; ``limit_set`` judges it."""

    value = forms.FloatField(help_text="Holds from the next cycle on, and over restarts.")
    field_order = ("value", "reason")


def _status(request: Request) -> tuple[str, str]:
    return request.status, request.get_status_display()


def _verb(service: Callable[..., object]) -> Callable[[Request, str, Data], object]:
    return lambda row, actor, data: service(request=row, actor=actor, reason=data["reason"])


def _set_priority(row: Request, actor: str, data: Data) -> None:
    services.request_set_priority(request=row, priority=data["priority"], actor=actor, reason=data["reason"])


register_verbs(
    Request,
    Verb("submit", "Submit", foretell.submit, foretell.why_not_submit, _verb(services.request_submit), _status),
    Verb("release", "Release", foretell.release, foretell.why_not_release, _verb(services.request_release), _status),
    Verb("hold", "Hold", foretell.hold, foretell.why_not_hold, _verb(services.request_hold), _status),
    Verb("priority", "Change priority", foretell.priority, foretell.why_not_priority, _set_priority, _status, PriorityForm),
    Verb("abort", "Abort", foretell.abort, foretell.why_not_abort, _verb(services.request_abort), _status, dangerous=True),
)


def _retry_foretold(effects: Sequence[Effect]) -> dict[int, list[str]]:
    return {effect.pk: _retry(effect) for effect in effects}


def _retry(effect: Effect) -> list[str]:
    last = [f"Last error: {effect.last_error}"] if effect.last_error else []
    if effect.state == EffectState.CLAIMED:
        return ["It runs just now and goes on.", *last]
    tried = f"after {counted(effect.attempts, 'attempt')}" if effect.attempts else "for the first time"
    return [f"{effect.get_kind_display()}: tried again at once, {tried}; its time for retries starts anew.", *last]


def _retry_refused(effect: Effect) -> str:
    return "It is done; there is nothing to retry." if effect.state == EffectState.DONE else ""


def _retry_now(effect: Effect, actor: str, data: Data) -> None:
    effect_retry_now(effect=effect, actor=actor, reason=data["reason"])


register_verbs(
    Effect,
    Verb("retry", "Retry now", _retry_foretold, _retry_refused, _retry_now, lambda row: (row.state, row.get_state_display())),
)

_SCHEDD_TEXTS = {
    ScheddState.ENABLED: "New DAGs may go to it.",
    ScheddState.DRAINING: "No new DAG goes to it; those at it run to their end.",
    ScheddState.DISABLED: "No new DAG goes to it; those at it are still watched.",
}


def _schedd_foretold(state: ScheddState, schedds: Sequence[Schedd]) -> dict[int, list[str]]:
    return {row.pk: [_SCHEDD_TEXTS[state], f"{counted(_live(row), 'DAG')} there now."] for row in schedds}


def _live(schedd: Schedd) -> int:
    return schedd.dags.filter(status__in=LIVE_DAG).count()


def _schedd_refused(state: ScheddState, schedd: Schedd) -> str:
    return f"It is {state.label.lower()} already." if schedd.state == state else ""


def _schedd_set(state: ScheddState, schedd: Schedd, actor: str, data: Data) -> None:
    schedd_change_state(schedd=schedd, state=state, actor=actor, reason=data["reason"])


def _schedd_verb(name: str, label: str, state: ScheddState) -> Verb:
    return Verb(
        name,
        label,
        partial(_schedd_foretold, state),
        partial(_schedd_refused, state),
        partial(_schedd_set, state),
        lambda row: (row.state, row.get_state_display()),
    )


register_verbs(
    Schedd,
    _schedd_verb("enable", "Enable", ScheddState.ENABLED),
    _schedd_verb("drain", "Drain", ScheddState.DRAINING),
    _schedd_verb("disable", "Disable", ScheddState.DISABLED),
)


def _limit_foretold(limits: Sequence[Limit]) -> dict[str, list[str]]:
    return {row.name: _limit(row) for row in limits}


def _limit(row: Limit) -> list[str]:
    told = [f"It is {row.value} now; its default is {getattr(conf(), row.name)}."]
    if description := Conf.model_fields[row.name].description:
        told.append(f"It means: {description}.")
    if row.name == "max_active_dags":
        told.append(f"{admission_standing().active_dags} slots are in use. A lower limit stops none of them.")
    return told


def _limit_set(row: Limit, actor: str, data: Data) -> None:
    changed = limit_set(name=row.name, value=data["value"], actor=actor, reason=data["reason"])
    row.value = changed.value


register_verbs(
    Limit,
    Verb("change", "Change", _limit_foretold, lambda _: "", _limit_set, lambda row: (str(row.value), str(row.value)), LimitForm),
)
