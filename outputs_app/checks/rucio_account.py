"""Whether Rucio lets our account do what outputs need: asked before outputs are refused one by one (docs/coexistence.md)."""

from __future__ import annotations

from outputs_app.models import Placement
from wms2.adapters import factory
from wms2.adapters.rucio_rules import ACTIVITIES
from wms2.conf import conf
from wms2.errors import ServiceRejected


def account_problems() -> list[str]:
    """What is missing, each with what to do; empty when nothing is.

    Raises:
        ServiceUnavailable: Rucio did not answer.
    """
    rucio = factory.rucio()
    # MSOutput goes by none of them
    placements = [] if conf().msoutput_places else list(Placement.objects.exclude(disk_expression=""))
    found = rucio.account_problems()
    for activity in sorted({row.disk_activity for row in placements} - ACTIVITIES - {""}):
        found.append(f"activity {activity!r} is not one of CMS's: rules with it are refused ({', '.join(sorted(ACTIVITIES))})")
    for row in placements:
        try:
            unapproved = rucio.rses_asking_approval(row.disk_expression)
        except ServiceRejected as error:
            found.append(f"placement of {row}: {error}")
            continue
        if unapproved:
            found.append(
                f"placement of {row}: {', '.join(unapproved)} of {row.disk_expression!r} need approval, so the rule is refused:"
                " leave them out of the expression"
            )
    return found
