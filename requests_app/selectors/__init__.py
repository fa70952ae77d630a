"""Reads of requests_app, shared by the REST interface, pages and metrics. Nothing here writes."""

from requests_app.selectors.account import Account, account_of
from requests_app.selectors.admission import AdmissionStanding, QueuedRow, admission_standing, config_in_force, queue_rows
from requests_app.selectors.lifecycle import LifecycleStanding, lifecycle_standing
from requests_app.selectors.requests import RequestPicture, release_repeated, request_picture, requests_listed
from requests_app.selectors.summary import StatusFacts, SystemSummary, request_facts, status_counts, system_summary
from requests_app.selectors.versions import VersionChain, version_chain
from requests_app.selectors.workflows import WorkflowStanding, workflow_standing, workflows_shown

__all__ = [
    "Account",
    "AdmissionStanding",
    "LifecycleStanding",
    "QueuedRow",
    "RequestPicture",
    "StatusFacts",
    "SystemSummary",
    "VersionChain",
    "WorkflowStanding",
    "account_of",
    "admission_standing",
    "config_in_force",
    "lifecycle_standing",
    "queue_rows",
    "release_repeated",
    "request_facts",
    "request_picture",
    "requests_listed",
    "status_counts",
    "system_summary",
    "version_chain",
    "workflow_standing",
    "workflows_shown",
]
