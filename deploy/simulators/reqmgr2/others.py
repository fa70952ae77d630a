"""What moves in ReqMgr2 without the simulator's caller: WMCore's agents, ReqMgr2's own tasks; who may do what; a fault.

Nothing runs on its own: whatever is due by the clock is done before the next call is answered. All of it is off until it is set,
by ``serve`` or ``POST /admin/reqmgr2``.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from deploy.simulators.reqmgr2.states import allowed
from deploy.simulators.reqmgr2.store import RequestStore

#: What a certificate without the role of an administrator may set.
PEOPLE_SET = ("assignment-approved", "assigned", "force-complete", "closed-out", "announced", "rejected", "aborted")


@dataclass(frozen=True, slots=True)
class Habits:
    """``agents_seconds``: the work queue takes a request that was staged for so long, whatever its team, and agents pull its
    elements, unless it is of a team in ``no_agents``; ``settle_seconds``: an aborted or
    forced one without queue elements moves on; ``close_seconds``: Unified closes out what is completed for so long, but never one
    whose ``TotalInputLumis`` are 0, which waits for a person; ``archive_seconds``: it announces what is closed out, and
    MSRuleCleaner archives what is announced, after so long each; ``cannot_split``: names in the work queue's old list of staged
    requests that it sets ``failed`` without a look at their status, where ReqMgr2 lets it; ``admins``: logins that may set every
    status (None: all); ``lost_answers``: so many changes take effect and are answered 500."""

    agents_seconds: float | None = None
    no_agents: tuple[str, ...] = ()
    settle_seconds: float | None = None
    close_seconds: float | None = None
    archive_seconds: float | None = None
    cannot_split: tuple[str, ...] = ()
    admins: tuple[str, ...] | None = None
    lost_answers: int = 0

    def changed(self, changes: dict[str, Any]) -> "Habits":
        """With what a POST says.

        Raises:
            TypeError: it names something else.
        """
        named = ("admins", "cannot_split", "no_agents")
        lists: dict[str, Any] = {name: tuple(changes[name]) for name in named if changes.get(name) is not None}
        return replace(self, **{**changes, **lists})

    def forbids(self, login: str, status: object) -> bool:
        """Whether this needs the role that the login does not have."""
        return self.admins is not None and status is not None and login not in self.admins and status not in PEOPLE_SET

    def due(self, store: RequestStore, queue: "WorkQueue") -> Iterator[tuple[str, str, str]]:
        """(name, from, to) of what moves now; what agents take is in the work queue first."""
        for name, document in store.by_names(self.cannot_split).items():
            if allowed(document["RequestStatus"], "failed"):
                yield name, document["RequestStatus"], "failed"
        waits: dict[str, Callable[[str, dict[str, Any]], bool]] = {
            "completed": lambda _, document: not document.get("TotalInputLumis"),
            "aborted": lambda name, _: name in queue,
            "force-complete": lambda name, _: name in queue,
        }
        for before, after, seconds in (
            ("staged", "acquired", self.agents_seconds),
            ("aborted", "aborted-completed", self.settle_seconds),
            ("force-complete", "completed", self.settle_seconds),
            ("completed", "closed-out", self.close_seconds),
            ("closed-out", "announced", self.archive_seconds),
            ("announced", "normal-archived", self.archive_seconds),
        ):
            for name, document in store.in_statuses([before]).items() if seconds is not None else ():
                history = document.get("RequestTransition") or [{}]
                if time.time() - history[-1].get("UpdateTime", 0) < (seconds or 0):
                    continue
                if before == "staged":
                    team = str(document.get("Team"))
                    queue.add(name, team, pulled=team not in self.no_agents)
                elif before in waits and waits[before](name, document):
                    continue
                yield name, before, after


class WorkQueue(Protocol):
    """The inbox of WMCore's global work queue."""

    def add(self, name: str, team: str, *, pulled: bool) -> None:
        """Take a request in, once, as an element that an agent has pulled or not."""

    def __contains__(self, name: object) -> bool:
        """Whether it was taken in."""
