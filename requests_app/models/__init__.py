"""Rows of requests_app: what was asked, where it stands, and who said what."""

from requests_app.harvesting.models import Harvest, HarvestState
from requests_app.models.alerts import (
    BY_MESSAGE,
    Alert,
    AlertChannel,
    AlertMessage,
    AlertNotice,
    AlertRoute,
    ChannelKind,
    MessageKind,
    RequestWatch,
    Severity,
)
from requests_app.models.campaign import Campaign, CampaignCount
from requests_app.models.control import (
    LEADER_LEASE,
    SERVICE_LEVEL,
    AdmissionBucket,
    AdmissionLimit,
    AdmissionState,
    DeadLetter,
    DeadLetterKind,
    EvaluationLease,
    Installation,
    Lease,
    Limit,
    Reconciliation,
    ServiceLevel,
)
from requests_app.models.history import Event, EventFeed, Progress, ProgressSample, RequestTransition
from requests_app.models.inputs import BY_BYTES, ExcludedBecause, InputFile, InputLumis, LumiFate, PileupBlock, PileupDataset
from requests_app.models.request import (
    AFTER_WORK,
    DONE,
    EVALUATED,
    MAX_VERSIONS,
    TERMINAL,
    UNMERGED_FROZEN,
    UNWANTED,
    CleanupPolicy,
    HoldCode,
    ReqMgr2Request,
    Request,
    RequestGroup,
    RequestStatus,
    ShownStatus,
    StopIntent,
    status_shown,
)
from requests_app.models.saved_view import SavedView
from requests_app.models.workflow import KeptAccount, Round, Workflow, WorkflowStatus
