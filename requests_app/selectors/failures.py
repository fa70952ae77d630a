"""What fails across requests: kinds of failures by code and site, the requests concerned, samples.

From failure groups that grew in a time range, each with all its attempts: a group belongs to one request, and none is older.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import Max, Min, QuerySet, Sum

from dags_app.attempts import logs_size
from dags_app.models import FailureGroup, FailureSample
from requests_app.models import Request, RequestStatus
from wms2.runtime.grouping import grouped
from wms2.web.formatting import word

#: Before any failure.
EVER = datetime(1970, 1, 1, tzinfo=UTC)
#: In addresses: of jobs whose site is not known.
NO_SITE = "none"
MOST_REQUESTS = 50
#: Samples that are read, shown with distinct messages, and looked at for their logs of each message.
SAMPLES_READ, SAMPLES_SHOWN, SAMPLES_SEARCHED = 80, 10, 4
_SAMPLE = (
    "unit", "node", "attempt", "job_id", "at", "message", "dag__submit_dir", "group__code", "group__category", "group__site",
    "group__step", "group__workflow__request",
)  # fmt: skip
#: What differs between messages that say the same.
_NUMBERS = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9]+")


class Place(NamedTuple):
    """Failed attempts of one code, category and rule at one site."""

    code: int
    site: str
    category: str
    rule: str
    attempts: int
    given_up: int


class Concerned(NamedTuple):
    """A request with failures, and its failed attempts of those that were asked for."""

    pk: Any
    request_name: str
    prep_id: str
    status: str
    campaign: str
    attempts: int
    given_up: int
    first_at: datetime
    last_at: datetime

    @property
    def status_label(self) -> str:
        """The status in words."""
        return str(word(RequestStatus, self.status).label)


class Shown(NamedTuple):
    """A sample, its request, the bytes of its packed logs (None: there are none), and how many read ones say the same."""

    sample: FailureSample
    request_name: str
    log_bytes: int | None
    alike: int


class Asked(NamedTuple):
    """Which failures are meant; ``site``: ``NO_SITE`` for those at none that is known."""

    begins: datetime
    category: str = ""
    campaign: str = ""
    code: int | None = None
    site: str = ""

    @property
    def where(self) -> dict[str, Any]:
        """As conditions on groups, but for the time."""
        found: dict[str, Any] = {"category": self.category} if self.category else {}
        found |= {"workflow__request__campaign": self.campaign} if self.campaign else {}
        found |= {"code": self.code} if self.code is not None else {}
        return found | ({"site": "" if self.site == NO_SITE else self.site} if self.site else {})

    @property
    def kinds(self) -> QuerySet[FailureGroup]:
        """Groups that grew since then."""
        return FailureGroup.objects.filter(last_at__gte=self.begins, **self.where).order_by()


def places(rows: QuerySet[FailureGroup]) -> list[Place]:
    """One query."""
    sums = rows.values_list("code", "site", "category", "rule").annotate(Sum("attempts"), Sum("given_up"))
    return [Place(*row) for row in sums]


def requests_concerned(rows: QuerySet[FailureGroup]) -> tuple[list[Concerned], bool]:
    """Those with most jobs given up first, at most ``MOST_REQUESTS``, and whether there are more; two queries."""
    sums = rows.values_list("workflow").annotate(
        attempts_sum=Sum("attempts"), given_up_sum=Sum("given_up"), first=Min("first_at"), last=Max("last_at")
    )
    found = list(sums.order_by("-given_up_sum", "-attempts_sum", "workflow")[: MOST_REQUESTS + 1])
    shown = ("workflow", "pk", "request_name", "prep_id", "status", "campaign")
    about = {row[0]: row[1:] for row in Request.objects.filter(workflow__in=[row[0] for row in found]).values_list(*shown)}
    concerned = [Concerned(*about[workflow], *sums) for workflow, *sums in found[:MOST_REQUESTS]]
    return concerned, len(found) > MOST_REQUESTS


def samples_of(asked: Asked) -> list[Shown]:
    """With distinct messages, those whose logs are kept first, then the newest; one query, and a look at some directories."""
    rows = FailureSample.objects.filter(at__gte=asked.begins, **{f"group__{name}": value for name, value in asked.where.items()})
    read = rows.select_related("dag", "group", "group__workflow").only(*_SAMPLE)
    newest = read.order_by("-at", "-id")[:SAMPLES_READ]
    alike = grouped(newest, lambda sample: (sample.group.code, _NUMBERS.sub("#", sample.message)))
    found = [_with_log(each) for each in list(alike.values())[:SAMPLES_SHOWN]]
    return sorted(found, key=lambda each: each.log_bytes is None)


def _with_log(alike: Sequence[FailureSample]) -> Shown:
    """The newest whose logs are kept, else the newest."""
    sizes = ((each, logs_size(each.dag, each.unit, each.node, each.attempt, each.job_id)) for each in alike[:SAMPLES_SEARCHED])
    sample, size = next(((each, size) for each, size in sizes if size is not None), (alike[0], None))
    return Shown(sample, sample.group.workflow.request_id, size, len(alike))


def sums_by(found: Iterable[Place], name: str) -> Mapping[Any, int]:
    """Failed attempts by one field of places."""
    sums: dict[Any, int] = defaultdict(int)
    for place in found:
        sums[getattr(place, name)] += place.attempts
    return sums
