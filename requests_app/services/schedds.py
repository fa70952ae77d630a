"""An operator's word on a schedd: whether it gets new DAGs; with a reason, audited, refusals too."""

from __future__ import annotations

from sites_app.models import Schedd, ScheddState
from sites_app.schedds import schedd_set_state
from wms2.audit import audited


def schedd_change_state(*, schedd: Schedd, state: ScheddState, actor: str, reason: str) -> None:
    """Enable, drain or disable a schedd. DAGs at it are neither stopped nor moved.

    Raises:
        InvalidTransition: it is so already.
        StaleState: somebody else changed it meanwhile.
    """
    with audited(
        actor=actor, action="schedd_change_state", target=schedd.name, target_type="schedd", reason=reason,
        old=schedd.state, new=state,
    ):  # fmt: skip
        schedd_set_state(schedd=schedd, state=state)
