"""Work units of the scripted world that have landed and wait, and what DAGMan writes of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.scripted import dagman
from tests.support.scripted.schedd import Job
from tests.support.scripted.world import World
from wms2.adapters.htcondor_ads import IDLE_ATTRIBUTE
from wms2.runtime import clock

HERE = "T1_US_FNAL"


def land(job: Job, unit: str, site: str, at: str = "") -> None:
    place = job.directory / unit
    (place / "site.inc").write_text(f"ELECTED_SITE = {site}\n")
    with (place / "elected.log").open("a") as log:
        log.write(f"{at or f'{clock.now():%Y-%m-%dT%H:%M:%SZ}'} {site}\n")


def waiting(unit: str, hours: float, site: str = HERE, **more: Any) -> dict[str, Any]:
    """A node job's ad, in the queue for so long."""
    queued = int((clock.now() - timedelta(hours=hours)).timestamp())
    return {"WMS2_Unit": unit, "WMS2_Role": "processing", "JobStatus": 1, "QDate": queued, "WMS2_Site": site, **more}


def left(world: World) -> set[str]:
    return {ad["WMS2_Unit"] for ad in world.schedd.waiting if IDLE_ATTRIBUTE in ad}


def write_status(job: Job, *, retries: int = 0) -> None:
    """What DAGMan writes each minute."""
    dagman.write_status(job.directory, job.nodes, final=False, written_at=int(clock.now().timestamp()), retries=retries)
