"""The error tree. Every failure that callers handle in a way of its own is one of these; the cause is kept with ``from``.

What to do with each: ``ServiceUnavailable`` and below: nothing is known or changed, try again next cycle. ``ServiceRejected``:
the service understood and refused; retrying the same call is useless, a person must look. ``AwaitsPerson``: look again later.
``InvalidTransition`` and ``StaleState``: another writer was faster or the operation does not fit (HTTP 409).
``DocumentRefused``: bad input, nothing stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Wms2Error(Exception):
    """Root of WMS2's own errors."""


class ConfigurationError(Wms2Error):
    """A setting is missing or wrong; says which one and what to do."""


class ServiceError(Wms2Error):
    """A call to an outside service did not succeed.

    Args:
        service: ``reqmgr2``, ``configcache``, ``dbs``, ``rucio``, ``cric``, ``htcondor`` (also the metrics label).
        operation: the adapter's method, e.g. ``register_files``.
        detail: one readable line.
        code: the service's own error code or class, if it gave one.
    """

    def __init__(self, service: str, operation: str, detail: str, code: str | int | None = None) -> None:
        self.service, self.operation, self.detail, self.code = service, operation, detail, code
        super().__init__(f"{service} {operation}: {detail}" + (f" (code {code})" if code is not None else ""))


class ServiceUnavailable(ServiceError):
    """No answer, or an answer that says nothing about the request (connection, time-out, 5xx). Nothing may be concluded."""


class CircuitOpen(ServiceUnavailable):
    """Not tried: the service failed repeatedly a moment ago."""


class RowsUnread(ServiceUnavailable):
    """Some rows of an answer cannot be read; all others were taken over."""


class NotNow(ServiceUnavailable):
    """The service is well and puts off this one thing, e.g. because a storage element is blocked. Nothing was changed."""


class AwaitsPerson(ServiceError):
    """The service has taken it and a person there must agree first. No failure, however long it takes: look again later."""


class ServiceRejected(ServiceError):
    """The service understood the request and refused it (4xx). The same call will be refused again."""


class NotFoundInService(ServiceRejected):
    """The service answered that the named thing does not exist."""


class InvalidTransition(Wms2Error):
    """The status table has no such edge, or the operation does not apply in this status."""


class FieldRefused(InvalidTransition):
    """An operation does not apply because of what one of its fields says."""

    def __init__(self, field: str, detail: str) -> None:
        self.field = field
        super().__init__(detail)


class StaleState(Wms2Error):
    """The row changed between read and write (another worker, an operator, a newer leader)."""


class LeaseLost(StaleState):
    """The caller's lease has expired or belongs to a newer epoch; it must stop writing."""


class ResourceBusy(Wms2Error):
    """Others have what was asked for of a shared resource; not a failure, and nothing was waited for: ask again later."""


class LedgerViolation(Wms2Error):
    """Work was lost, doubled or invented. The request is held; never continue over it."""


class PlanningRefused(Wms2Error):
    """The work cannot be planned as asked; the reason is for the operator."""


class ParentEnded(PlanningRefused):
    """What a request depends on never completes, or writes nothing that it reads."""


class NoSite(Wms2Error):
    """Every site that the work may go to is banned, draining or closed; wait, or lift a ban."""


class NoPileup(Wms2Error):
    """The pileup of a DAG that is submitted again has left the sites that its work was planned for: it must be planned anew."""


class ShortOfEvents(PlanningRefused):
    """Round after round loses its events; planning more would pass the limit."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document: the field by its ReqMgr2 name (``Step2.Multicore``) and what to do."""

    field: str
    problem: str


class DocumentRefused(Wms2Error):
    """A request document was refused; nothing was stored."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.field}: {p.problem}" for p in self.problems))


class RequestKnown(DocumentRefused):
    """A request of this name is there already, in a status as the interfaces spell it; nothing was stored."""

    def __init__(self, request_name: str, status: str) -> None:
        self.request_name, self.status = request_name, status
        text = f"{request_name} is known already and is {status}; a new version needs a name of its own"
        super().__init__([Problem("RequestName", text)])


class EventsGone(Wms2Error):
    """A reader of the feed asks for what is behind an id of which WMS2 does not have everything any more."""

    def __init__(self, after: int, oldest: int, last: int) -> None:
        why = f"some events behind it are not kept any more; {oldest} is the oldest id to read on from"
        other = f"the last id is {last}: this is another database, or an older copy of it"
        super().__init__(f"after {after}: {why if after < oldest else other}")


class TooManyReaders(Wms2Error):
    """A process of the web server has as many readers waiting as it may."""
