"""Request statuses of ReqMgr2: who follows whom, and what may be changed in which status."""

from collections.abc import Mapping
from typing import Any

START = "new"

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "new": ("new", "assignment-approved", "rejected"),
    "assignment-approved": ("assigned", "rejected"),
    "assigned": ("staging", "aborted"),
    "staging": ("staged", "aborted"),
    "staged": ("acquired", "aborted", "failed"),
    "acquired": ("running-open", "aborted", "failed"),
    "running-open": ("running-closed", "force-complete", "aborted"),
    "running-closed": ("force-complete", "completed", "aborted"),
    "force-complete": ("completed",),
    "failed": ("rejected", "assigned"),
    "completed": ("closed-out", "rejected"),
    "closed-out": ("announced", "rejected"),
    "announced": ("rejected", "normal-archived"),
    "aborted": ("aborted-completed",),
    "aborted-completed": ("aborted-archived",),
    "rejected": ("rejected-archived",),
    "normal-archived": ("rejected-archived",),
    "aborted-archived": (),
    "rejected-archived": (),
}

# what ``status=ACTIVE`` stands for in a query
ACTIVE = tuple(status for status in TRANSITIONS if not status.endswith("-archived"))

# requests in these have their directories of unmerged files protected
PROTECTED = (
    *("assignment-approved", "assigned", "staging", "staged", "acquired", "running-open", "running-closed", "force-complete"),
    *("completed", "closed-out", "failed"),
)

_SITE_LISTS = ("RequestPriority", "SiteWhitelist", "SiteBlacklist")

# arguments that a PUT without a status may change, by the request's status; all others are dropped in silence
CHANGEABLE: dict[str, tuple[str, ...]] = {
    "new": ("RequestPriority",),
    "assignment-approved": (
        *("RequestPriority", "Team", "SiteWhitelist", "SiteBlacklist", "AcquisitionEra", "ProcessingString", "ProcessingVersion"),
        *("Dashboard", "MergedLFNBase", "TrustSitelists", "UnmergedLFNBase", "MinMergeSize", "MaxMergeSize", "MaxMergeEvents"),
        *("BlockCloseMaxWaitTime", "BlockCloseMaxFiles", "BlockCloseMaxEvents", "BlockCloseMaxSize", "SoftTimeout"),
        *("GracePeriod", "TrustPUSitelists", "CustodialSites", "NonCustodialSites", "Override", "SubscriptionPriority"),
    ),
    "assigned": ("RequestPriority",),
    "staging": _SITE_LISTS,
    "staged": ("RequestPriority",),
    "acquired": _SITE_LISTS,
    "running-open": _SITE_LISTS,
    "running-closed": ("RequestPriority",),
}

# going to one of these, anything else in the body is dropped in silence; going to the others it is refused (but see ``updates``)
STATUS_ONLY = tuple(status for status in TRANSITIONS if status not in CHANGEABLE)

# the four work-queue statistics: they are taken only together, and add up
STATISTICS = {
    "total_jobs": "TotalEstimatedJobs",
    "input_events": "TotalInputEvents",
    "input_lumis": "TotalInputLumis",
    "input_num_files": "TotalInputFiles",
}

REQUEST_TYPES = ("ReReco", "StoreResults", "Resubmission", "TaskChain", "DQMHarvest", "StepChain")


def elements_of(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps or tasks of a chain, by their labels."""
    labels = [f"{word}{number}" for word in ("Step", "Task") for number in range(1, int(document.get(f"{word}Chain") or 0) + 1)]
    return {label: document[label] for label in labels if isinstance(document.get(label), dict)}


def allowed(before: str, after: str) -> bool:
    """Whether a request may go from one status to the other."""
    return after in TRANSITIONS.get(before, ())
