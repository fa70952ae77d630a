"""DQM harvestings as readers see them."""

from __future__ import annotations

from django.db.models import QuerySet

from requests_app.models import Harvest, HarvestState

#: States of what is not at an end.
HARVEST_OPEN = (HarvestState.WAITING, HarvestState.RUNNING, HarvestState.FAILED)


def harvests_shown() -> QuerySet[Harvest]:
    """All."""
    return Harvest.objects.select_related("job")
