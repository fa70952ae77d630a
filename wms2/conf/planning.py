"""Settings of planning, and of what is tried again after failures."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeInt, model_validator

from wms2.conf.base import Base


class Planning(Base):
    """How work is cut, and how often tried."""

    # --- Planning
    adaptive_default: bool = False
    """Whether a request runs in rounds that are sized by what was measured when its import does not say."""
    input_reread_seconds: float = Field(600.0, gt=0)
    """Pause between two readings of an input dataset that may still grow (`OpenRunningTimeout`)."""
    pass_fractions: tuple[str, ...] = ("*=1", "DQMIO=0")
    """Share of the events that a document asks for which is enough in DBS, as `TIER=share,...`; `*` is every tier that is
    not named, 1 without it. A generation that has fewer is extended; with input, so much of what the accepted manifests
    declare has to be there. DQMIO holds no events. A request may have its own (`pass_fraction` of a release)."""

    # --- Errors
    stage_out_pauses: tuple[NonNegativeInt, ...] = (60, 300, 600)
    """Seconds between the tries of a job to stage out a file to one volume, separated by commas, before it goes to the
    next, and of an upload to a DQM server; of DAGs planned from now on. A worker node may have a variable of this name of
    its own, with spaces."""
    superseded_grace_days: float = Field(30.0, ge=0)
    """Outputs that a completed new version has replaced are taken back after so many days, unless the request says at once;
    0: only by hand."""

    @model_validator(mode="after")
    def _fractions_make_sense(self) -> Self:
        try:
            sensible = all(0 <= share <= 1 for share in self.pass_fraction_of.values())
        except ValueError:
            sensible = False
        if not sensible:
            raise ValueError("WMS2_PASS_FRACTIONS: tier=share, each share from 0 to 1, separated by commas")
        return self

    @property
    def pass_fraction_of(self) -> dict[str, float]:
        """``pass_fractions`` by tier; ``*`` is there always."""
        pairs = (each.partition("=") for each in self.pass_fractions)
        return {"*": 1.0} | {tier.strip(): float(share) for tier, _, share in pairs}
