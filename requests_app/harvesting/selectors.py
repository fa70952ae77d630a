"""DQM harvestings as readers see them."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Count, QuerySet

from requests_app.models import Harvest, HarvestState


def harvests_shown() -> QuerySet[Harvest]:
    """All."""
    return Harvest.objects.select_related("job")


def harvests_of(request_name: str, most: int) -> tuple[Harvest, ...]:
    """Of a request: what is still to be done first, then what failed."""
    return tuple(harvests_shown().filter(request_id=request_name).order_by("-state", "dataset", "run")[:most])


def harvests_open() -> Iterable[tuple[str, int]]:
    """(state, number) of what is not at an end."""
    states = (HarvestState.WAITING, HarvestState.RUNNING, HarvestState.FAILED)
    rows = Harvest.objects.filter(state__in=states).order_by().values_list("state")
    return {**dict.fromkeys(states, 0), **dict(rows.annotate(number=Count("id")))}.items()
