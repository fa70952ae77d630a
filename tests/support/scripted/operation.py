"""Asking for an operation, with what every operation must keep to: refused it changes nothing, repeated it changes nothing
more, and what a
page offers is what the operation does. And the tally of what was asked, accepted and reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dags_app.models import DAG, DAGHistory
from outputs_app.models import Effect, OutputDataset, ProcessingBlock
from requests_app.models import Event, Request, RequestTransition
from tests.support.scripted.snapshot import changed, snapshot
from wms2.errors import ConfigurationError, DocumentRefused, InvalidTransition, ServiceError

REFUSALS = (InvalidTransition, DocumentRefused, ConfigurationError)
#: Lines of a DAG's history say who asked, as often as somebody does.
HISTORY = "dag_history"


@dataclass(frozen=True, slots=True)
class Operation:
    """One way of using a service of WMS2.

    Args:
        function: the service; what the tally counts.
        act: uses it on a target.
        why_not: what a page says before: empty if the operation may be used on the target.
        retold: tables that a repetition writes to all the same.
    """

    name: str
    function: Callable[..., Any]
    act: Callable[[Any], Any]
    why_not: Callable[[Any], str] | None = None
    retold: frozenset[str] = frozenset()


@dataclass
class Tally:
    """What was asked and what was reached, over all lives of a run."""

    steps: int = 0
    lives: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    #: (operation, status of the request) of accepted ones
    at: Counter[tuple[str, str]] = field(default_factory=Counter)
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    dag_edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def collect(self) -> None:
        """Count what the rows of one life say, at its end."""
        self.lives += 1
        self.edges.update(RequestTransition.objects.exclude(from_status="").values_list("from_status", "to_status"))
        moves = DAGHistory.objects.exclude(from_status="").exclude(to_status="")
        self.dag_edges.update(moves.values_list("from_status", "to_status"))
        events = Event.objects.filter(kind="request.status", data__hold_code__isnull=False)
        self.reached.update(f"hold:{code}" for code in events.values_list("data__hold_code", flat=True))
        self.reached.update(f"alert:{c}" for c in Event.objects.filter(kind="alert").values_list("data__code", flat=True))
        self.reached.update(f"event:{kind}" for kind in Event.objects.values_list("kind", flat=True))
        self.reached.update(f"dag:{kind}" for kind in DAG.objects.values_list("kind", flat=True))
        self.reached.update(f"dataset:{state}" for state in OutputDataset.objects.values_list("state", flat=True))
        self.reached.update(f"block:{status}" for status in ProcessingBlock.objects.values_list("status", flat=True))
        self.reached.update(f"effect:{kind}" for kind in Effect.objects.filter(state="done").values_list("kind", flat=True))

    def reported(self) -> str:
        """For people."""
        accepted, refused = self.accepted.total(), self.refused.total()
        lines = [f"{self.lives} lives, {self.steps} steps, {accepted} words accepted, {refused} refused"]
        for name in ("accepted", "refused", "edges", "dag_edges", "reached"):
            counts: Counter[object] = getattr(self, name)
            lines.append(f"{name}: " + ", ".join(f"{key} {count}" for key, count in sorted(counts.items(), key=str)))
        return "\n".join(lines)


def ask(tally: Tally, action: Operation, target: Any, *, twice: bool = False) -> bool:
    """Somebody asks; True if it was accepted. A refusal is an answer.

    Raises:
        AssertionError: the operation did something else than it says.
    """
    target.refresh_from_db()
    status = target.status if isinstance(target, Request) else ""
    why_not = action.why_not(target) if action.why_not is not None else None
    before = snapshot()
    if not _accepted(action, target):
        tally.refused[action.name] += 1
        moved = changed(before)
        assert not moved, f"{action.name} of {target} ({status}) was refused and changed {moved}"
        assert why_not != "", f"{action.name} of {target} ({status}) was offered and refused"
        return False
    tally.accepted[action.name] += 1
    tally.at[action.name, status] += 1
    if why_not:
        moved = changed(before, but=action.retold)
        assert not moved, f"{action.name} of {target} ({status}) changed {moved} although: {why_not}"
    if twice:
        after = snapshot()
        _accepted(action, target)
        moved = changed(after, but={HISTORY, *action.retold})
        assert not moved, f"{action.name} of {target} ({status}), done twice, changed {moved} again"
    return True


def _accepted(action: Operation, target: Any) -> bool:
    try:
        action.act(target)
    except (*REFUSALS, ServiceError):
        return False
    finally:
        target.refresh_from_db()
    return True
