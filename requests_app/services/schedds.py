"""An operator's word on a schedd: whether it gets new DAGs; with a reason, audited, refusals too."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from requests_app.audit import audit
from sites_app.models import Schedd, ScheddState
from sites_app.schedds import schedd_set_state
from wms2.errors import InvalidTransition, StaleState


def schedd_change_state(*, schedd: Schedd, state: ScheddState, actor: str, reason: str) -> None:
    """Enable, drain or disable a schedd. DAGs at it are neither stopped nor moved.

    Raises:
        InvalidTransition: it is so already.
        StaleState: somebody else changed it meanwhile.
    """
    old = schedd.state
    told = partial(audit, actor=actor, action="schedd_change_state", target=schedd.name, target_type="schedd", reason=reason)
    try:
        with transaction.atomic():
            schedd_set_state(schedd=schedd, state=state)
            told(old=old, new=state)
    except (InvalidTransition, StaleState) as error:
        told(refused=True, old=old, new=state, why=str(error))
        raise
