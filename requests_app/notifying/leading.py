"""What the leader sends by itself, so that people hear of alerts although no worker runs: the states that are repeated each
minute, and messages that no worker has taken for some time.

Nothing here waits for what is outside: each call has a thread, with a time limit and without a database, and what came of it is
recorded by a later poll. A channel that does not answer is not called again before its call has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import Context
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog

from requests_app.models import AlertChannel
from requests_app.notifying.compose import messages_compose
from requests_app.notifying.repeat import channels_repeated, state_record, states_due
from requests_app.notifying.send import attempted, message_call, message_claim, message_record
from wms2.adapters import caller
from wms2.adapters.caller import HeldLease, working_under
from wms2.errors import LeaseLost
from wms2.runtime import clock
from wms2.runtime.locks import unless_locked
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
EVERY_SECONDS = 60.0
#: After so long nothing is sent any more, nor recorded: this process was stopped, and another leads.
_FRESH_SECONDS = 90.0
#: Messages that workers have left for so long are sent by the leader, so many in a minute.
_OVERDUE, _MOST = timedelta(minutes=1), 20
Outcome = Exception | None


class _Call(NamedTuple):
    began: float
    thread: threading.Thread
    said: list[Outcome]
    record: Callable[[Outcome], object]


class FromLeader:
    """Of one process. ``poll`` is called while it leads."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._next_at = -1.0

    def poll(self, mark: Callable[[datetime], bool]) -> None:
        """Record what has come of calls, and once a minute begin new ones.

        Args:
            mark: notes the moment where all processes of the leader's node see it, as the leader; False: it is not time yet.
        """
        self._record()
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + EVERY_SECONDS
        began, channels = caller.since_boot(), channels_repeated()
        if channels and mark(clock.now()):
            for state in states_due([each for each in channels if _name(each) not in self._calls]):
                self._begin(_name(state.channel), began, state.send, partial(state_record, state.channel))
        with unless_locked("alerts"):  # a worker is at it
            messages_compose()
        for _ in range(_MOST):
            began = caller.since_boot()  # before the claim: a pause right after it counts
            if (message := message_claim(overdue=_OVERDUE)) is None:
                break
            self._begin(f"message {message.pk}", began, partial(message_call, message), partial(message_record, message))

    def finish(self) -> None:
        """Wait for the calls that were begun, and record what has come of them."""
        for call in self._calls.values():
            call.thread.join()
        self._record()

    def _begin(self, name: str, began: float, send: Callable[[], None], record: Callable[[Outcome], object]) -> None:
        said: list[Outcome] = []
        lease = HeldLease(began + _FRESH_SECONDS)
        # not under the lease of this poll, which is over before the call is
        thread = threading.Thread(target=Context().run, args=(_run, name, send, lease, said), name=f"alerts {name}", daemon=True)
        self._calls[name] = _Call(began, thread, said, record)
        thread.start()

    def _record(self) -> None:
        for name in [name for name, call in self._calls.items() if not call.thread.is_alive()]:
            call = self._calls[name]
            with row_by_itself("alerts", name, lambda _: None):  # while the database is away it is left to a later poll
                for outcome in call.said if caller.since_boot() - call.began < _FRESH_SECONDS else ():
                    call.record(outcome)
            del self._calls[name]


def _name(channel: AlertChannel) -> str:
    return f"channel {channel.pk}"


def _run(name: str, send: Callable[[], None], lease: HeldLease, said: list[Outcome]) -> None:
    try:
        with working_under(lease):
            said.append(attempted(send))
    except LeaseLost:
        log.warning("alerts not sent: this process was stopped meanwhile", what=name)
