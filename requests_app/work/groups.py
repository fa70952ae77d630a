"""Requests that hang together: children of a group complete together, dependents begin after their parents (ADR 0024).

Owns: where a group stands, the step of its children into REMOVING_FILES, what a dependent waits for and reads. Does not own: who
belongs to whom (``services.groups``), whether a child has enough events (``lifecycle``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from django.db import transaction
from django.db.models import Sum

from outputs_app.models import OutputFile, OwnedDataset, Validity
from requests_app.intake import with_input
from requests_app.models import DONE, Request, RequestGroup, RequestStatus
from requests_app.states import mark_related_due, transition
from wms2.errors import ParentEnded, StaleState
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.locks import BEING_CHANGED, Fenced

log = structlog.get_logger(__name__)
S = RequestStatus
#: From here on a group's children go to their end, even if others do not.
GONE_ON = (S.REMOVING_FILES, *DONE)
#: Never completes any more.
ENDED = (S.FAILED, S.ABORTED, S.CLEANING, S.CLEANED)
#: So many are named; the others are counted.
_NAMED = 5
#: How ``waiting_for`` of a dependent, and of a child that is there, begins: that may take weeks, and has no time limit.
PARENTS, SIBLINGS = "what it depends on:", "the others of its group"
_VERSION = re.compile(r"-v\d+(?=/[^/]+\Z)")


@dataclass(frozen=True, slots=True)
class Child:
    """One request of a group. ``events``: of one that has ended, valid in DBS all the same."""

    request: Request
    events: int = 0

    @property
    def there(self) -> bool:
        """Whether it only waits for the others, or went on with them."""
        row = self.request
        ready = row.group_ready_at is not None and row.group_ready_at >= row.status_since
        return row.status in GONE_ON or (row.status == S.VALIDATED_OUTPUTS and ready)

    @property
    def skipped(self) -> bool:
        """Whether the others go on without it: it has ended, and nothing of it is in DBS."""
        return self.request.status in ENDED and not self.events

    def __str__(self) -> str:
        """What changes without waking those that wait is left out: it would be old."""
        child = f"{self.request} is {self.request.get_status_display()}" if self.request.status in ENDED else str(self.request)
        return f"{child} with {self.events} events in DBS: take it out of the group, or clean it" if self.events else child


class GroupStatus(NamedTuple):
    """A group as its children have it now."""

    group: RequestGroup
    children: tuple[Child, ...]

    @property
    def waiting_for(self) -> str:
        """Who is missing, and why; empty if all are there."""
        return _some(child for child in self.children if not child.there and not child.skipped)

    @property
    def status(self) -> str:
        """Derived. held: a child needs an operator; waiting: one is there, and waits for others."""
        coming = [child for child in self.children if not child.skipped]
        statuses = {child.request.status for child in coming}
        if not coming:
            return "ended" if self.children else "empty"
        if statuses <= {*GONE_ON}:
            return "completed" if statuses <= {*DONE} else "completing"
        if statuses & {S.HELD, S.WAITING_INTEGRITY, *ENDED}:
            return "held"
        return "waiting" if any(child.there for child in coming) else "active"


def group_status(group: RequestGroup) -> GroupStatus:
    """As it is now; two queries."""
    rows = Request.objects.defer("request_data", "prepared").filter(in_group=group).order_by("request_name")
    valid = OutputFile.objects.filter(validity=Validity.VALID, block__dbs_block_closed=True)
    ended = valid.filter(dataset__workflow__request__in_group=group, dataset__workflow__request__status__in=ENDED)
    events = dict(ended.values_list("dataset__workflow__request").annotate(Sum("events")))
    return GroupStatus(group, tuple(Child(row, events.get(row.request_name, 0)) for row in rows))


def siblings_missing(request: Request) -> str:
    """For whom of its group a child has to wait that has enough events itself; empty: it may go on.

    In the caller's transaction, which holds the child's row. The last one that is there takes all others on in it, so that none
    completes while another could still go back for more events. The group's row is never waited for: a request that finds it
    taken is woken again, and sees what the other has done.
    """
    request.refresh_from_db(fields=["in_group"])
    if request.in_group_id is None:
        return ""
    with transaction.atomic():
        if not Child(request).there:
            request.group_ready_at = clock.now()
            Request.objects.filter(pk=request.pk).update(group_ready_at=request.group_ready_at)
        group = RequestGroup.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=request.in_group_id).first()
        if group is None:
            mark_due([request.pk], "group")
            return "its group, which is being changed just now"
        others = Request.objects.filter(in_group=group, status=S.VALIDATED_OUTPUTS).exclude(pk=request.pk)
        list(others.select_for_update(no_key=True).order_by("pk").values_list("pk"))  # none goes back from here on
        status_detail = group_status(group)
        if status_detail.waiting_for:
            return f"{SIBLINGS} {group}: {status_detail.waiting_for}"
        _go_on(status_detail, request)
    return ""


def _go_on(status_detail: GroupStatus, last: Request) -> None:
    skipped = _some(child for child in status_detail.children if child.skipped)
    warning = f"group {status_detail.group} completes without what has ended with no events in DBS: {skipped}"
    why = f"all of group {status_detail.group} are there, {last} as the last"
    for row in (child.request for child in status_detail.children if child.request.status == S.VALIDATED_OUTPUTS):
        if skipped:
            log.warning("a group goes on without some of its requests", request_name=row.request_name, skipped=skipped)
            Request.objects.filter(pk=row.pk).update(warnings=[*row.warnings, warning])
        if row != last:
            transition(row, S.REMOVING_FILES, actor="lifecycle", reason=why, evidence={"last": str(last), "skipped": skipped})


def parents_missing(request: Request) -> str:
    """Which requests one has to wait for before it begins; empty: none.

    Raises:
        ParentEnded: one of them will never complete.
    """
    parents = request.depends_on.exclude(status__in=DONE).only("request_name", "status").order_by("request_name")
    if ended := [Child(row) for row in parents if row.status in ENDED]:
        raise ParentEnded(f"{PARENTS} {_some(ended)}; restart that, or let this depend on another or on none; then release")
    return f"{PARENTS} {_some(parents)}" if parents else ""


def input_follow(request: Request, fenced: Fenced) -> None:
    """Have a dependent read what its parents wrote, also where a later version of one has written it under another name.

    Raises:
        ParentEnded: its input is nothing of that.
    """
    reads = input_among(request.input_dataset, list(request.depends_on.all()))
    if reads is None:
        raise ParentEnded(f"{PARENTS} {request.input_dataset} is nothing that was written; let this depend on another or on none")
    if reads != request.input_dataset:
        request.request_data = with_input(request.request_data, request.input_dataset, reads)
        request.prepared, request.input_dataset = None, reads
        with fenced():
            Request.objects.filter(pk=request.pk).update(request_data=request.request_data, prepared=None, input_dataset=reads)


def input_among(wanted: str, parents: Iterable[Request]) -> str | None:
    """What a child reads of its parents' datasets: what it names, or the same of another version; None: nothing."""
    names = set(OwnedDataset.objects.filter(owners__request__in=parents).values_list("name", flat=True))
    if not wanted or wanted in names or not names:
        return wanted
    alike = [name for name in names if _VERSION.sub("", name) == _VERSION.sub("", wanted)]
    return alike[0] if len(alike) == 1 else None


def group_locked(group: RequestGroup) -> RequestGroup:
    """Its row, before its requests change; nothing waits for it while holding a request. In the caller's transaction.

    Raises:
        StaleState: it is being changed just now.
    """
    row = RequestGroup.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=group.pk).first()
    if row is None:
        raise StaleState(f"group {group}: {BEING_CHANGED}")
    return row


def group_completes(group: RequestGroup) -> bool:
    """Whether its requests complete already, so that no other can join. Under its lock, that stays so."""
    return Request.objects.filter(in_group=group, status__in=GONE_ON).exists()


def group_inherit(request: Request, new: Request) -> None:
    """``new`` does work of ``request``: the group waits for it too, unless it completes already: then ``new`` gets a warning.

    In the caller's transaction.

    Raises:
        StaleState: the group is being changed just now.
    """
    request.refresh_from_db(fields=["in_group"])
    group = group_locked(request.in_group) if request.in_group is not None else None
    if group is not None and group_completes(group):
        new.warnings = [*new.warnings, f"group {group} completes already without it: it completes by itself"]
        group = None
    new.in_group = group
    Request.objects.filter(pk=new.pk).update(in_group=group, warnings=new.warnings)


def related_move(old: Request, new: Request) -> None:
    """Another version takes a request's place: in its group, as a parent and as a child; in the caller's transaction.

    Raises:
        StaleState: the group is being changed just now.
    """
    group_inherit(old, new)
    if new.in_group is not None:
        Request.objects.filter(pk=old.pk).update(in_group=None)
        old.in_group = None
    new.depends_on.set(old.depends_on.all())
    Request.depends_on.through.objects.filter(to_request=old).update(to_request=new)
    mark_related_due(new)


def _some(rows: Iterable[object]) -> str:
    """Some, and how many more."""
    words = [str(row) for row in rows]
    return "; ".join(words[:_NAMED]) + (f"; and {len(words) - _NAMED} more" if len(words) > _NAMED else "")
