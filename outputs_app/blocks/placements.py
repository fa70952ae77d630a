"""Where outputs go, as operators decided it: reading a decision, changing, adding and removing one, audited (ADR 0017)."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.forms.models import model_to_dict

from outputs_app.models import Placement, ProcessingBlock
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import InvalidTransition

#: What an operator may set of one that is there.
FIELDS = ("tape", "disk_expression", "disk_copies", "disk_days", "disk_activity")


def placement_of(block: ProcessingBlock) -> Placement:
    """What holds for the block's tier and its request's campaign: the campaign's own first, then the tier's.

    While MSOutput places outputs, neither tape nor disk.
    """
    if conf().msoutput_places:
        return Placement(tape=False)
    campaign = ProcessingBlock.objects.values_list("workflow__request__campaign", flat=True).get(pk=block.pk)
    rows = Placement.objects.filter(campaign__in={"", campaign}, tier__in={"", block.dataset.tier})
    return rows.order_by("-campaign", "-tier").first() or Placement()


def placements_idle() -> str:
    """Why none of them counts; empty where they do."""
    if not conf().msoutput_places:
        return ""
    why = "" if conf().output_placement else " is not set, and ReqMgr2 is followed"
    return f"MSOutput places outputs (WMS2_OUTPUT_PLACEMENT{why}): placements count only when WMS2 does."


def placement_set(*, row: Placement, actor: str, reason: str, campaign: str = "", tier: str = "", **values: Any) -> Placement:
    """Change the decision for ``campaign`` and ``tier``, or add it; ``row``: what it begins with where values are missing.
    Returns it.

    Raises:
        InvalidTransition: a value is not possible, or another row decides this already.
    """
    found = Placement.objects.filter(campaign=campaign, tier=tier).first()
    if found is not None and row.pk not in (None, found.pk):
        raise InvalidTransition(f"{found} is decided already; change that")
    old, begin = (model_to_dict(found) if found else None), model_to_dict(row, FIELDS)
    new = found or Placement(campaign=campaign, tier=tier)
    for name, value in (begin | values).items():
        setattr(new, name, value)
    with audited(
        actor=actor, action="placement_set", target=new, target_type="placement", reason=reason, old=old, new=model_to_dict(new)
    ):
        try:
            new.full_clean()
        except ValidationError as error:
            raise InvalidTransition("; ".join(error.messages)) from error
        new.save()
    return new


def placement_remove(*, row: Placement, actor: str, reason: str) -> None:
    """Take a decision away; the one for all others holds again.

    Raises:
        InvalidTransition: it is the one for all others.
    """
    old = model_to_dict(row)
    with audited(actor=actor, action="placement_remove", target=row, target_type="placement", reason=reason, old=old):
        if why := remove_refused(row):
            raise InvalidTransition(why)
        Placement.objects.filter(pk=row.pk).delete()


def remove_refused(row: Placement) -> str:
    """Why it cannot be removed; empty if it can."""
    return "" if row.campaign or row.tier else "It is what holds where nothing else is decided; change it instead."
