"""GET /request: which requests a query string asks for, and in which form they are answered.

Kept as read in ReqMgr2: ``team`` counts only together with ``status`` and nothing else; conditions are combined by
intersection; details of archived statuses are refused.
"""

import json
from collections.abc import Iterable
from typing import Any

from deploy.simulators.reqmgr2.checking import InvalidSpec
from deploy.simulators.reqmgr2.states import ACTIVE, elements_of
from deploy.simulators.reqmgr2.store import Document, RequestStore

_FALSE = ("false", "False", "FALSE")
# parameter and the couch view it is looked up in
_VIEWS = {
    "status": "bystatus",
    "request_type": "bytype",
    "prep_id": "byprepid",
    "inputdataset": "byinputdataset",
    "outputdataset": "byoutputdataset",
    "campaign": "bycampaign",
    "mc_pileup": "bymcpileup",
    "data_pileup": "bydatapileup",
}
# what the mask "DAS" stands for
_DAS_MASK = (
    *("RequestName", "RequestType", "RequestStatus", "Campaign", "PrepID", "InputDataset", "OutputDatasets", "CMSSWVersion"),
    *("GlobalTag", "ProcessingString", "AcquisitionEra"),
)


def find(store: RequestStore, query: Iterable[tuple[str, str]], name: str | None) -> list[Any]:
    """The value of ``result``: one map by name, documents (``common_dict=1``), or names (``detail=false``); [] when none.

    Raises:
        InvalidSpec: details of an archived status, or what should be a number and is not.
    """
    params: dict[str, list[str]] = {}
    for key, value in query:
        params.setdefault(key, []).append(value)
    mask = params.pop("mask", [])
    detail = params.pop("detail", ["true"])[0] not in _FALSE
    common = params.pop("common_dict", ["0"])[0]
    params.pop("_nostale", None)
    if name is not None:
        params = {"name": [name]}
    if not common.lstrip("-").isdigit():
        raise InvalidSpec(f"invalid literal for int() with base 10: {common!r}")
    statuses = params.get("status", [])
    if detail and any(status.endswith("-archived") for status in statuses):
        raise InvalidSpec(
            "Can't retrieve bulk archived status requests with detail option True, set detail=false or use other search arguments"
        )
    if statuses == ["ACTIVE"]:
        params["status"] = list(ACTIVE)
    found = _look_up(store, params)
    if mask:
        found = {key: _masked(document, mask) for key, document in found.items()}
    if not found:
        return []
    if not detail:
        return list(found)
    return list(found.values()) if common == "1" else [found]


def _look_up(store: RequestStore, params: dict[str, list[str]]) -> dict[str, Document]:
    keys = set(params)
    if keys == {"status", "team"}:
        return store.by_view("byteamandstatus", [[team, status] for team in params["team"] for status in params["status"]])
    sets: list[dict[str, Document]] = []
    for key, view in _VIEWS.items():
        if params.get(key):
            sets.append(store.by_view(view, params[key]))
    if params.get("name"):
        sets.append(store.by_names(params["name"]))
    if params.get("date_range"):
        sets.append(store.by_view("bydate", [_date_key(text) for text in params["date_range"]]))
    if keys in ({"status", "requestor"}, {"status", "requestor", "request_type"}):
        pairs = [[status, login] for status in params["status"] for login in params["requestor"]]
        sets.append(store.by_view("bystatusandrequestor", pairs))
    if not sets:
        return {}
    common = set.intersection(*(set(found) for found in sets))
    return {name: document for name, document in sets[0].items() if name in common}


def _date_key(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _masked(document: Document, mask: list[str]) -> Document:
    names = _DAS_MASK if mask == ["DAS"] else tuple(mask)
    return {name: _masked_value(document, name) for name in names}


def _masked_value(document: Document, name: str) -> Any:
    """A value; for chains, when a step or task has it, the list of all different values over the steps."""
    top, elements = document.get(name), elements_of(document)
    if not elements:
        return top
    if not any(name in element for element in elements.values()):
        return list(top.values()) if isinstance(top, dict) and name not in ("LumiList", "AgentJobInfo") else top
    found: list[Any] = []
    for label, element in elements.items():
        value = element.get(name, top.get(label) if isinstance(top, dict) else top)
        for item in value if isinstance(value, list) else [value]:
            if item not in (None, "") and item not in found:
                found.append(item)
    return found
