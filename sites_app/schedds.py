"""Whether a schedd gets new DAGs. Running ones are watched in every state."""

from __future__ import annotations

import structlog
from django.utils import timezone

from sites_app.models import Schedd, ScheddState
from wms2.errors import InvalidTransition, StaleState

log = structlog.get_logger(__name__)


def schedd_set_state(*, schedd: Schedd, state: ScheddState) -> None:
    """Compare-and-set from the state that ``schedd`` was read with.

    Raises:
        InvalidTransition: it is in that state already, or would become DISCOVERED, which only discovery sets.
        StaleState: somebody else changed it meanwhile.
    """
    old = ScheddState(schedd.state)
    if old is state:
        raise InvalidTransition(f"{schedd.name} is {state.label.lower()} already")
    if state is ScheddState.DISCOVERED:
        raise InvalidTransition(f"{schedd.name}: only discovery makes a schedd {state.label.lower()}")
    if Schedd.objects.filter(pk=schedd.pk, state=old).update(state=state, updated_at=timezone.now()) != 1:
        raise StaleState(f"{schedd.name} is no longer {old.label.lower()}")
    schedd.state = state
    log.info("schedd state", schedd=schedd.name, old=old.value, new=state.value)
