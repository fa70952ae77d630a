"""Rows of requests_app: what was asked, where it stands, and who said what."""

from requests_app.models.admission import AdmissionBucket, AdmissionLimit, AdmissionState
from requests_app.models.control import LEADER_LEASE, Installation, Lease, Limit, Reconciliation
from requests_app.models.dead_letter import DeadLetter, LetterKind
from requests_app.models.evaluation import EvaluationLease
from requests_app.models.group import RequestGroup
from requests_app.models.harvest import Harvest, HarvestState
from requests_app.models.history import Event, EventFeed, RequestTransition
from requests_app.models.inputs import BY_BYTES, ExcludedBecause, InputFile, InputLumis, LumiFate
from requests_app.models.pileup import PileupBlock, PileupDataset
from requests_app.models.progress import Progress, ProgressSample
from requests_app.models.reqmgr2 import ReqMgr2Request
from requests_app.models.request import (
    AFTER_WORK,
    EVALUATED,
    TERMINAL,
    UNMERGED_FROZEN,
    CleanupPolicy,
    HoldCode,
    Request,
    RequestStatus,
    ShownStatus,
    StopIntent,
    status_shown,
)
from requests_app.models.service_level import SERVICE_LEVEL, ServiceLevel
from requests_app.models.workflow import KeptAccount, Round, Workflow, WorkflowStatus

__all__ = [
    "AFTER_WORK",
    "BY_BYTES",
    "EVALUATED",
    "LEADER_LEASE",
    "SERVICE_LEVEL",
    "TERMINAL",
    "UNMERGED_FROZEN",
    "AdmissionBucket",
    "AdmissionLimit",
    "AdmissionState",
    "CleanupPolicy",
    "DeadLetter",
    "EvaluationLease",
    "Event",
    "EventFeed",
    "ExcludedBecause",
    "Harvest",
    "HarvestState",
    "HoldCode",
    "InputFile",
    "InputLumis",
    "Installation",
    "KeptAccount",
    "Lease",
    "LetterKind",
    "Limit",
    "LumiFate",
    "PileupBlock",
    "PileupDataset",
    "Progress",
    "ProgressSample",
    "Reconciliation",
    "ReqMgr2Request",
    "Request",
    "RequestGroup",
    "RequestStatus",
    "RequestTransition",
    "Round",
    "ServiceLevel",
    "ShownStatus",
    "StopIntent",
    "Workflow",
    "WorkflowStatus",
    "status_shown",
]
