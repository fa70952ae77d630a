"""Where operators want a request's next DAG to go (ADR 0026): kept on the request until that DAG is submitted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from requests_app.models import Request
from sites_app.models import Schedd
from wms2.runtime.json_columns import known


@dataclass(frozen=True, slots=True)
class Move:
    """Away from a schedd, to a certain one or to any other; by whom and why. ``drain``: it holds while that schedd drains.

    ``to_name`` is kept for when the schedd has been removed.
    """

    away: int
    to: int | None
    actor: str
    reason: str
    drain: bool = False
    to_name: str = ""

    @property
    def kept(self) -> dict[str, Any]:
        """As the request has it."""
        return asdict(self)

    def allows(self, schedd: Schedd) -> bool:
        """Whether its DAG may go there."""
        return schedd.pk != self.away and self.to in (None, schedd.pk)


def move_of(request: Request) -> Move | None:
    """What is wanted of it now."""
    wanted = known(Move, request.moving)
    return Move(**wanted) if wanted else None
