"""MSPileup: where pileup is kept on purpose, and which part of it (docs/coexistence.md, Pileup)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wms2.adapters.http import HttpService
from wms2.adapters.wire import Wire

SERVICE = "mspileup"


class PileupPlacement(Wire):
    """``rses``: where it is whole. ``custom_name``: container with the part that is kept; empty: all of it."""

    is_active: Annotated[bool, Field(alias="active")]
    rses: Annotated[tuple[str, ...], Field(alias="currentRSEs")]
    custom_name: Annotated[str, Field(alias="customName")] = ""


class _Answer(Wire):
    result: list[PileupPlacement]


class MSPileup:
    """One MSPileup."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def placement(self, pileup: str) -> PileupPlacement | None:
        """Of a dataset; None: it is unknown there."""
        answer = self._http.get_json(_Answer, "/pileup", operation="placement", params={"pileupName": pileup})
        return answer.result[0] if answer.result else None
