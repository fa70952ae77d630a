"""DQM harvesting: what ``EnableHarvesting`` and the fields beside it ask for. Owns ReqMgr2's defaults of them.

A configuration of ConfigCache is needed: what WMCore makes of ``Scenario`` and ``DQMSequences`` is refused (ADR 0020).
"""

from __future__ import annotations

import math

from dags_app.planning.specs import HarvestSpec, MergeKind, OutputSpec
from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.values import choice, flag, name, real, text, whole

DEFAULT_UPLOAD_URL = "https://cmsweb.cern.ch/dqm/dev"
#: Where a workflow keeps the configuration's text, beside those of its steps; no step may have such a name.
PSET = "DQM harvesting"
_BY_RUN, _MULTI_RUN = "byRun", "multiRun"
_MAX_MEMORY_MB = 64_000.0
_MAX_SECONDS = 2**31


def read_harvest(document: Part) -> HarvestSpec | None:
    """What is to be harvested, and where the result goes; None when nothing is."""
    if not document.read("EnableHarvesting", flag, fallback=False):
        return None
    config_id = document.read("DQMConfigCacheID", name(lexicon.CONFIG_ID), "")
    if not config_id and not document.own.get("DQMConfigCacheID"):
        document.problem(
            "DQMConfigCacheID",
            "is missing: EnableHarvesting needs the configuration that harvests; WMS2 makes none of Scenario and DQMSequences",
        )
    if document.read("PeriodicHarvestInterval", whole(0, _MAX_SECONDS), 0):
        document.warn("PeriodicHarvestInterval", "not used: WMS2 harvests once, when the request completes")
    if document.read("DQMUploadProxy", text(500), ""):
        document.warn("DQMUploadProxy", "not used: uploads carry the credential of WMS2's jobs")
    return HarvestSpec(
        config_cache_id=config_id,
        upload_urls=document.read("DQMUploadUrl", _urls, (DEFAULT_UPLOAD_URL,)),
        together=document.read("DQMHarvestUnit", choice(_BY_RUN, _MULTI_RUN), _BY_RUN) == _MULTI_RUN,
        memory_mb=math.ceil(document.read("HarvestingMemory", real(1.0, _MAX_MEMORY_MB), 0.0)),
    )


def harvested(outputs: tuple[OutputSpec, ...]) -> tuple[OutputSpec, ...]:
    """Those that hold DQM's monitoring elements."""
    return tuple(output for output in outputs if output.merge is MergeKind.DQMIO)


def _urls(value: object) -> tuple[str, ...]:
    """Of one text, separated by semicolons."""
    read_one = name(lexicon.URL)
    return tuple(dict.fromkeys(read_one(each.strip()).rstrip("/") for each in text(2000)(value).split(";")))
