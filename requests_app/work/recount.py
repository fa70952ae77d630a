"""Whether DBS has enough events of each dataset, and how many more have to be generated (docs/design/model.md, Recount).

The judge is the catalogue, as validation has read it, not our own account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any, NamedTuple

from django.db.models import Q, Sum

from dags_app.planning.levels import share_passed
from outputs_app.models import BlockStatus, OutputDataset, Validity
from requests_app.harvesting.intake import harvested
from requests_app.models import Request
from requests_app.work.overrides import pass_fraction
from requests_app.work.spec import spec_of


class Counted(NamedTuple):
    """Events of one dataset. ``enough``: so many are wanted; ``given_up``: in files whose registration an operator gave up."""

    dataset: str
    enough: int
    in_dbs: int
    given_up: int

    @property
    def short(self) -> int:
        """How many are missing."""
        return max(0, self.enough - self.in_dbs - self.given_up)

    def as_dict(self) -> dict[str, Any]:
        """For evidence."""
        return self._asdict() | {"short": self.short}

    def __str__(self) -> str:
        return f"{self.in_dbs} of {self.enough} events of {self.dataset}"


def recount(request: Request, catalogue: Mapping[str, tuple[int, int]]) -> list[Counted]:
    """Each dataset that holds events: what is asked for, by the document's filter efficiencies; with input, what the
    accepted manifests declare.

    Args:
        catalogue: dataset -> valid files and events in DBS.
    """
    spec = spec_of(request.workflow)
    steps = {step.name: step for step in spec.steps}
    valid, lost = Q(files__validity=Validity.VALID), Q(files__block__status=BlockStatus.GIVEN_UP)
    eventless = [output.dataset for output in harvested(spec.outputs)]
    rows = OutputDataset.objects.filter(workflow=request.workflow).exclude(name__in=eventless).order_by("name")
    rows = rows.annotate(
        made=Sum("files__events", filter=valid & ~lost, default=0),
        given_up=Sum("files__events", filter=valid & lost, default=0),
    )
    counted = []
    for name, tier, step, made, given_up in rows.values_list("name", "tier", "step", "made", "given_up"):
        asked = floor(spec.generation.events * share_passed(steps, step)) if spec.generation is not None else made
        enough = floor(asked * pass_fraction(request, tier))
        counted.append(Counted(name, enough, catalogue.get(name, (0, 0))[1], given_up if spec.generation is not None else 0))
    return counted


def events_more(counted: Sequence[Counted], generated: int) -> int | None:
    """So many further events to generate make up for what is short, by what the generated ones have yielded; None: nothing came
    of them, so there is no ratio."""
    more = 0
    for each in counted:
        yielded = each.in_dbs + each.given_up
        if each.short and not yielded:
            return None
        if each.short:
            more = max(more, ceil(each.short * generated / yielded))
    return more
