"""Operations on DQM harvestings."""

from __future__ import annotations

from functools import partial

from requests_app.harvesting.jobs import harvest_decide, harvest_refused
from requests_app.harvesting.selectors import harvests_shown
from requests_app.models import Harvest, HarvestState
from wms2.actions import Action, ResourceType, declare

declare(
    ResourceType(
        Harvest, "harvest", "harvest", lambda key: harvests_shown().filter(pk=key),
        lambda harvest: (harvest.state, harvest.get_state_display()), "harvests/<int:pk>",
    ),
    Action(
        "retry", "Harvest again",
        "Harvest and upload again, also what is done, by a job within minutes: the servers keep both as versions.",
        partial(harvest_decide, state=HarvestState.WAITING), refused=harvest_refused, path="retry", inverse="discard",
    ),
    Action(
        "discard", "Discard", "Give a DQM harvesting up: nothing more is uploaded of it.",
        partial(harvest_decide, state=HarvestState.DISCARDED), refused=harvest_refused, path="discard", inverse="retry",
    ),
)  # fmt: skip
