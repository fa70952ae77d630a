"""When calling a service stops for a while: circuit breakers over failures in a row, known to all processes.

Owns: counting, the pause, the single probe after it. They are kept in the broker (``wms2.runtime.shared_counts``), so that
one worker's time-outs spare the others theirs; in the process while the broker is silent. Losing them costs a few calls, never
work. ADR 0014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from wms2.errors import CircuitOpen, NotNow, ServiceRejected, ServiceUnavailable
from wms2.runtime.shared_counts import Counts, SharedCounts

T = TypeVar("T")

FAILURES = 3
PAUSE_SECONDS = 10.0
#: A probe that was not heard of for so long has died; longer than any call may take.
PROBE_SECONDS = 120.0
#: A failure is forgotten after this if nothing was called since.
_REMEMBERED_SECONDS = 3600.0


class CircuitState(NamedTuple):
    """Failures in a row so far, and what is left of the pause after the last of them (0: over, or none)."""

    failures: int = 0
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Circuits:
    """The standing of circuits by their names; never raises."""

    counts: SharedCounts

    def status_detail(self, name: str) -> CircuitState:
        """Of one circuit."""
        return self.counts.ask(lambda counts: _status_details(counts, name)[name])

    def failed(self, name: str, opens_at: int = FAILURES, pause_seconds: float = PAUSE_SECONDS) -> None:
        """One more failure in a row; with ``opens_at`` of them the pause begins."""

        def count(counts: Counts) -> None:
            counts.drop(f"probe:{name}")
            counts.list_name(name, _REMEMBERED_SECONDS)
            failures, _ = counts.add(f"failures:{name}", _REMEMBERED_SECONDS, anew=True)
            if failures >= opens_at:
                counts.add(f"open:{name}", pause_seconds, anew=True)

        self.counts.ask(count)

    def answered(self, name: str, below: int | None = None) -> None:
        """Forget the failures; with ``below`` only while there are fewer."""

        def forget(counts: Counts) -> None:
            if below is None or _status_details(counts, name)[name].failures < below:
                counts.drop(f"failures:{name}", f"open:{name}", f"probe:{name}")

        self.counts.ask(forget)

    def take_probe(self, name: str) -> bool:
        """Whether the caller is the one that may probe now."""
        return self.counts.ask(lambda counts: counts.add(f"probe:{name}", PROBE_SECONDS)[0] == 1)

    def give_probe_back(self, name: str) -> None:
        """The probe gave no result: the next call may be it."""
        self.counts.ask(lambda counts: counts.drop(f"probe:{name}"))

    def all(self) -> dict[str, CircuitState]:
        """Circuits with failures."""

        def named(counts: Counts) -> dict[str, CircuitState]:
            return _status_details(counts, *sorted(counts.names()))

        return {name: status_detail for name, status_detail in self.counts.ask(named).items() if status_detail.failures}

    def clear(self) -> None:
        """Forget everything."""
        for name in self.all():
            self.answered(name)


def _status_details(counts: Counts, *names: str) -> dict[str, CircuitState]:
    """Of several circuits, in one question."""
    found = counts.read(*(f"{what}:{name}" for name in names for what in ("failures", "open")))
    pairs = zip(found[::2], found[1::2], strict=True)
    return {name: CircuitState(failures, pause) for name, ((failures, _), (_, pause)) in zip(names, pairs, strict=True)}


_circuits = Circuits(SharedCounts())


def circuits() -> Circuits:
    """Those of this process."""
    return _circuits


def use_circuits(counts: SharedCounts) -> None:
    """Keep them there from now on."""
    global _circuits  # noqa: PLW0603
    _circuits = Circuits(counts)


class CircuitBreaker:
    """Stops calling a service that failed repeatedly; after a pause lets one call through to probe it.

    Only ``ServiceUnavailable`` counts as a failure: a refusal, and a "not now" about one thing, show that the service is there.
    Failures count in a row, however long each takes: three time-outs of 30 s open it as three refused connections do.
    Circuits of different places (host, URL or schedd) are apart.
    """

    def __init__(self, service: str, place: str = "") -> None:
        self.service, self.name = service, f"{service}:{place}" if place else service

    def call(self, fn: Callable[[], T], operation: str = "call") -> T:
        """Run ``fn`` unless the circuit is open. Raises CircuitOpen: not tried; Exception: what ``fn`` raised."""
        status_detail = circuits().status_detail(self.name)
        is_probe = self._admit(status_detail, operation)
        try:
            result = fn()
        except (ServiceRejected, NotNow):
            self._record_answer(status_detail, is_probe)
            raise
        except BaseException as error:
            if isinstance(error, ServiceUnavailable) and not isinstance(error, CircuitOpen):
                circuits().failed(self.name)
            elif is_probe:  # an error of our own says nothing about the service; only free the probe's place
                circuits().give_probe_back(self.name)
            raise
        self._record_answer(status_detail, is_probe)
        return result

    def _admit(self, status_detail: CircuitState, operation: str) -> bool:
        """Whether the coming call is the probe; raises CircuitOpen when it may not be made."""
        if status_detail.failures < FAILURES:
            return False
        if status_detail.pause_seconds > 0:
            detail = (
                f"{self.name} failed {status_detail.failures} times in a row; next probe in {status_detail.pause_seconds:.0f} s"
            )
        elif circuits().take_probe(self.name):
            return True
        else:
            detail = f"{self.name} is being probed after repeated failures; not tried"
        raise CircuitOpen(self.service, operation, detail, "circuit_open")

    def _record_answer(self, status_detail: CircuitState, is_probe: bool) -> None:
        # Only the probe closes an open circuit: the answer to a slow call that began earlier says nothing about now.
        if is_probe:
            circuits().answered(self.name)
        elif status_detail.failures:
            circuits().answered(self.name, below=FAILURES)
