"""Hold, release and abort at any moment, by chance: every request ends as its last operation says, and nothing is left of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from dags_app.models import DAG, WorkUnit, WorkUnitState
from outputs_app.models import Effect, EffectState
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import request_abort, request_hold, request_release
from tests.support.faults import fault
from tests.support.outcomes import assert_aborted, assert_completed, assert_held, imported, status
from tests.support.side_by_side import PATIENCE
from tests.support.stack import worker
from wms2.errors import InvalidTransition

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
S = RequestStatus
VERBS: dict[str, Callable[..., None]] = {"hold": request_hold, "release": request_release, "abort": request_abort}
SEED, REQUESTS, LIMIT_SECONDS = 2026, 8, 300.0


def intent_is_open(request: Request) -> bool:
    return DAG.objects.filter(workflow__request=request, submit_intent_at__isnull=False, submitted_at__isnull=True).exists()


#: When an operation comes. Also a request that is further already is met: a moment may be over before anybody looks.
MOMENTS: dict[str, Callable[[Request], bool]] = {
    "at once": lambda request: True,
    "planning": lambda request: status(request) not in (S.SUBMITTED, S.QUEUED),
    "submitting": lambda request: intent_is_open(request) or status(request) not in (S.SUBMITTED, S.QUEUED, S.PLANNING),
    "active": lambda request: status(request) not in (S.SUBMITTED, S.QUEUED, S.PLANNING),
    "a unit is done": lambda request: WorkUnit.objects.filter(
        workflow__request=request, state__in=(WorkUnitState.DONE, WorkUnitState.FAILED)
    ).exists(),
    "registering": lambda request: Effect.objects.filter(request=request, state=EffectState.DONE).exists(),
    "held": lambda request: status(request) in (S.HELD, S.COMPLETED),
    "stopping": lambda request: status(request) in (S.STOPPING, S.HELD, S.COMPLETED),
}


@dataclass
class Story:
    """What happens to one request: operations at moments, in order; refused ones are left out."""

    request: Request
    to_come: list[tuple[str, str]]
    done: list[tuple[str, str]] = field(default_factory=list)

    def go_on(self) -> None:
        """The next operation, if its moment has come."""
        if not self.to_come or not MOMENTS[self.to_come[0][0]](self.request):
            return
        _, action = self.to_come.pop(0)
        self.request.refresh_from_db()
        was = self.request.status
        try:
            VERBS[action](request=self.request, actor="tester", reason="by chance")
        except InvalidTransition:  # it has ended before the operation came; that is told and changes nothing
            return
        self.done.append((was, action))

    @property
    def end(self) -> RequestStatus:
        """What the operations that were taken lead to."""
        actions = [action for _, action in self.done]
        if "abort" in actions:
            return S.ABORTED
        return S.HELD if actions and actions[-1] == "hold" else S.COMPLETED


def stories() -> list[Story]:
    """One for each moment, then more by chance: hold and release, again and again, or an abort on the way."""
    chance = random.Random(SEED)
    first = ["at once", "planning", "submitting", "active", "a unit is done", "registering"]
    first += chance.choices(["planning", "submitting", "active"], k=REQUESTS - len(first))
    reported = []
    for moment in first:
        steps = [(moment, "hold"), ("held", "release")]
        if chance.random() < 0.5:
            steps += [(chance.choice(["planning", "submitting", "active"]), "hold"), ("held", "release")]
        if chance.random() < 0.5:
            steps[chance.randrange(len(steps)) :] = [(chance.choice(["at once", "stopping", "submitting"]), "abort")]
        elif chance.random() < 0.2:
            steps.pop()  # it stays held
        request = imported(events=20)
        reported.append(Story(request, steps))
    return reported


@fault(
    "verbs at any moment",
    done="hold, release and abort by chance, also while planning and submitting",
    spec="docs/design/model.md, Request statuses",
    afterwards="each request ends as its last verb says; nothing is left of the others",
)
def test_requests_that_are_held_released_and_aborted_at_any_moment_end_as_they_were_told(ready: None) -> None:
    reported = stories()
    assert {story_end for story in reported for story_end in [action for _, action in story.to_come]} == set(VERBS)
    with worker(WMS2_NODE="one") as running, worker(WMS2_NODE="two"):
        deadline = time.monotonic() + LIMIT_SECONDS * PATIENCE
        while any(story.to_come or status(story.request) != story.end for story in reported):
            assert time.monotonic() < deadline, f"{unfinished(reported)}\n{running.tail()}"
            for story in reported:
                story.go_on()
            time.sleep(0.1)  # a submission takes longer
    met = Counter(was for story in reported for was, _ in story.done)
    assert met[S.PLANNING], f"no verb came while planning or submitting: {met}"
    assert met[S.ACTIVE], met
    for story in reported:
        if story.end == S.ABORTED:
            assert_aborted(story.request)
        elif story.end == S.HELD:
            assert_held(story.request, HoldCode.OPERATOR)
        else:
            assert_completed(story.request)


def unfinished(reported: list[Story]) -> str:
    """Who is not where the operations lead, for the message of a failure."""
    lines = []
    for story in reported:
        story.request.refresh_from_db()
        now = story.request
        lines.append(f"{now.request_name} {now.status}: {now.waiting_for or now.hold_reason}; {story.done}, then {story.to_come}")
    return "\n".join(lines)
