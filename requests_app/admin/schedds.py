"""Buttons on schedds: whether they get new DAGs, and an operator's word that a queue is lost, over its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dags_app.models import LIVE_DAG
from requests_app.services.losses import losses_of, schedd_confirm_lost
from requests_app.services.schedds import schedd_change_state
from sites_app.models import Schedd, ScheddState
from wms2.admin import Verb, register_verbs
from wms2.words import counted

Data = Mapping[str, Any]

_TEXTS = {
    ScheddState.ENABLED: "New DAGs may go to it.",
    ScheddState.DRAINING: "No new DAG goes to it; those at it run to their end.",
    ScheddState.DISABLED: "No new DAG goes to it; those at it are still watched.",
}


def _foretold(state: ScheddState, schedds: Sequence[Schedd]) -> dict[int, list[str]]:
    return {row.pk: [_TEXTS[state], f"{counted(_live(row), 'DAG')} there now."] for row in schedds}


def _live(schedd: Schedd) -> int:
    return schedd.dags.filter(status__in=LIVE_DAG).count()


def _refused(state: ScheddState, schedd: Schedd) -> str:
    return f"It is {state.label.lower()} already." if schedd.state == state else ""


def _set(state: ScheddState, schedd: Schedd, actor: str, data: Data) -> None:
    schedd_change_state(schedd=schedd, state=state, actor=actor, reason=data["reason"])


def _verb(name: str, label: str, state: ScheddState) -> Verb:
    return Verb(
        name,
        label,
        partial(_foretold, state),
        partial(_refused, state),
        partial(_set, state),
        lambda row: (row.state, row.get_state_display()),
    )


def _lost_foretold(schedds: Sequence[Schedd]) -> dict[int, list[str]]:
    return {row.pk: _lost_words(row) for row in schedds}


def _lost_words(schedd: Schedd) -> list[str]:
    found = losses_of(schedd)
    if found.refusal:
        return found.words()
    dags = counted(len(found.affected), "DAG")
    return [
        *found.words(),
        f"{dags} given up for good: what is done in them for certain is counted, their requests are held (queue lost).",
        "A release then plans what is left anew. Should a DAG of these come back into a queue, it is removed.",
    ]


def _lost_refused(schedd: Schedd) -> str:
    return losses_of(schedd).refusal


def _lost_confirm(schedd: Schedd, actor: str, data: Data) -> None:
    schedd_confirm_lost(schedd=schedd, actor=actor, reason=data["reason"])


def _lost_seen(schedd: Schedd) -> tuple[str, str]:
    affected = losses_of(schedd).affected
    return " ".join(sorted(str(row.dag.pk) for row in affected)), f"{counted(len(affected), 'DAG')} suspected lost"


register_verbs(
    Schedd,
    _verb("enable", "Enable", ScheddState.ENABLED),
    _verb("drain", "Drain", ScheddState.DRAINING),
    _verb("disable", "Disable", ScheddState.DISABLED),
    Verb("lost", "Confirm lost", _lost_foretold, _lost_refused, _lost_confirm, _lost_seen, dangerous=True),
)
