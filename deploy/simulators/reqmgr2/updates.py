"""PUT /request: status transitions, assignment and changes of arguments.

Kept as read in ReqMgr2: going to most statuses other arguments are dropped in silence; a change that the request's status
does not allow is dropped in silence too; the four statistics add up and are answered with "ERROR" although they are
stored.
"""

import time
from typing import Any

from deploy.simulators.reqmgr2.arguments import assign_arguments
from deploy.simulators.reqmgr2.checking import (
    InvalidSpec,
    check_arguments,
    check_priority,
    check_site_lists,
    refuse_unknown,
    set_defaults,
)
from deploy.simulators.reqmgr2.creation import Requestor, Surroundings
from deploy.simulators.reqmgr2.kinds import to_bool, to_list
from deploy.simulators.reqmgr2.outputs import check_assignable, compute
from deploy.simulators.reqmgr2.states import CHANGEABLE, STATISTICS, STATUS_ONLY, TRANSITIONS, allowed, elements_of

_TRANSITION_OF = {"RequestStatus": ("RequestTransition", "Status"), "RequestPriority": ("PriorityTransition", "Priority")}


def update(document: dict[str, Any], sent: dict[str, Any], requestor: Requestor, around: Surroundings, error_id: str) -> str:
    """Change ``document`` as ReqMgr2 would; returns "OK" or "ERROR" as its answer says it.

    Raises:
        InvalidSpec: the transition or an argument is refused; the document is then unchanged in the store (the caller drops it).
    """
    if "RequestStatus" in sent:
        return _change_status(document, dict(sent), requestor, around, error_id)
    return _change_arguments(document, dict(sent), requestor, around)


def _change_status(
    document: dict[str, Any], sent: dict[str, Any], requestor: Requestor, around: Surroundings, error_id: str
) -> str:
    before, after = document["RequestStatus"], sent["RequestStatus"]
    if after not in TRANSITIONS:
        raise InvalidSpec(f"{after!r}")
    if not allowed(before, after):
        name = document["RequestName"]
        raise InvalidSpec(
            f'InvalidStateTransition {error_id} [HTTP 400, APP 1101, MSG "Invalid status transition for request: {name}, from'
            f" '{before}' to '{after}'\", INFO None, ERR None]"
        )
    if after in STATUS_ONLY:
        store_changes(document, {"RequestStatus": after}, requestor)
        return "OK"
    if after == "assigned":
        definition = assign_arguments(document["RequestType"])
        refuse_unknown(sent, definition)
        check_arguments(sent, definition, "assign")
        check_site_lists(sent)
    check_priority(sent)
    if after == "assigned":
        _assign(document, sent, requestor, around)
        return "OK"
    others = set(sent) - {"RequestStatus"}
    if (after == "assignment-approved" and others and others != {"RequestPriority"}) or (
        after != "assignment-approved" and others - {"cascade"}
    ):
        raise InvalidSpec(f"There are invalid arguments with this status transition: {sent}")
    sent.pop("cascade", None)
    store_changes(document, sent, requestor)
    return "OK"


def _assign(document: dict[str, Any], sent: dict[str, Any], requestor: Requestor, around: Surroundings) -> None:
    if "SoftTimeout" in sent and "GracePeriod" in sent:
        sent["HardTimeout"] = sent["SoftTimeout"] + sent["GracePeriod"]
    set_defaults(sent, assign_arguments(document["RequestType"]), skip_none=True)
    if sent.get("RequestPriority") == document["RequestPriority"]:
        del sent["RequestPriority"]
    _check_trust(document, sent)
    outputs = compute(document, sent, around.find_config)
    check_assignable(outputs.datasets, around.data_tiers())
    sent["OutputDatasets"] = outputs.datasets
    sent["OutputModulesLFNBases"] = outputs.lfn_bases
    if outputs.parentage:
        sent["ChainParentageMap"] = outputs.parentage
    store_changes(document, sent, requestor)


def _check_trust(document: dict[str, Any], sent: dict[str, Any]) -> None:
    """Site lists can only be trusted over data locations where there is input data (or pile-up)."""
    parts = [document, *elements_of(document).values()]
    needs = {"TrustSitelists": ("input", "InputDataset"), "TrustPUSitelists": ("pileup", "MCPileup", "DataPileup")}
    for name, (word, *keys) in needs.items():
        if to_bool(sent[name]) and not any(part.get(key) for part in parts for key in keys):
            raise InvalidSpec(f"Setting {name}=True for workflows without {word} dataset is forbidden!")


def _change_arguments(document: dict[str, Any], sent: dict[str, Any], requestor: Requestor, around: Surroundings) -> str:
    if set(sent) == set(STATISTICS):
        _add_statistics(document, sent)
        return "ERROR"
    definition = assign_arguments(document["RequestType"])
    refuse_unknown(sent, definition)
    check_arguments(sent, definition, "change")
    _check_site_change(document, sent)
    changeable = CHANGEABLE.get(document["RequestStatus"], ())
    changes = {key: value for key, value in sent.items() if key in changeable and (key not in document or document[key] != value)}
    check_priority(changes)
    if not changes:
        return "OK"
    if document["RequestStatus"] == "assignment-approved" and set(changes) - {
        "RequestPriority",
        "SiteWhitelist",
        "SiteBlacklist",
    }:
        _assign(document, changes, requestor, around)
    else:
        store_changes(document, changes, requestor)
    return "OK"


def _check_site_change(document: dict[str, Any], sent: dict[str, Any]) -> None:
    """A changed list must not collide with the other one, sent or stored."""
    if "SiteWhitelist" in sent and "SiteBlacklist" in sent:
        check_site_lists(sent)
    elif "SiteWhitelist" in sent or "SiteBlacklist" in sent:
        white = to_list(sent.get("SiteWhitelist", document.get("SiteWhitelist", [])))
        black = to_list(sent.get("SiteBlacklist", document.get("SiteBlacklist", [])))
        both = sorted(set(white) & set(black))
        if both:
            raise InvalidSpec(
                "Validation of Site Lists for update failed due to conflicts with existing Site Lists."
                f" A site can only be black listed or whitelisted. Conflicting sites: {both}"
            )


def _add_statistics(document: dict[str, Any], sent: dict[str, Any]) -> None:
    for name, key in STATISTICS.items():
        document[key] = (document.get(key) or 0) + int(sent[name])


def store_changes(document: dict[str, Any], changes: dict[str, Any], requestor: Requestor) -> None:
    """Put the changes into the document; status and priority leave a line in their history, maps by step reach the steps."""
    now = int(time.time())
    for key, value in changes.items():
        document[key] = value
        if key in _TRANSITION_OF:
            history, word = _TRANSITION_OF[key]
            document.setdefault(history, []).append({word: value, "UpdateTime": now, "DN": requestor.dn})
        for element in elements_of(document).values() if isinstance(value, dict) else ():
            name = element.get("StepName") or element.get("TaskName")
            if element.get(key) and name in value:
                element[key] = value[name]
