"""Routes of dags_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from dags_app.api.attempts import (
    AttemptArchiveView,
    AttemptJobAdView,
    AttemptLogsView,
    AttemptLogView,
    AttemptReportView,
    DagStoredLogsView,
    NodeAttemptsView,
)
from dags_app.api.schedds import SCHEDD_ACTIONS, ScheddLossView, ScheddView
from dags_app.api.views import DAGS, DagLogsView, DagNodesView, DagViewSet
from wms2.api import converters  # noqa: F401  <schedd:...>
from wms2.api.actions import action_urls

_NODE = "dags/<uuid:pk>/units/<slug:unit>/nodes/<slug:node>"
#: Address of one attempt, of the pages too.
JOB = f"{_NODE}/attempts/<int:attempt>/jobs/<str:job_id>"

urlpatterns = [
    path("dags", DagViewSet.as_view({"get": "list"}), name="dag-list"),
    path("dags/<uuid:pk>", DagViewSet.as_view({"get": "retrieve"}), name="dag-detail"),
    path("dags/<uuid:pk>/nodes", DagNodesView.as_view(), name="dag-nodes"),
    path("dags/<uuid:pk>/logs", DagLogsView.as_view(), name="dag-logs"),
    path(f"{_NODE}/attempts", NodeAttemptsView.as_view(), name="node-attempts"),
    path(f"{JOB}/report", AttemptReportView.as_view(), name="attempt-report"),
    path(f"{JOB}/job-ad", AttemptJobAdView.as_view(), name="attempt-job-ad"),
    path(f"{JOB}/logs", AttemptLogsView.as_view(), name="attempt-logs"),
    path(f"{JOB}/logs/<int:number>", AttemptLogView.as_view(), name="attempt-log"),
    path(f"{JOB}/logs.tar.gz", AttemptArchiveView.as_view(), name="attempt-archive"),
    path("dags/<uuid:pk>/kept-logs", DagStoredLogsView.as_view(), name="dag-kept-logs"),
    path("schedds/<schedd:name>", ScheddView.as_view(), name="schedd-detail"),
    path("schedds/<schedd:name>/loss", ScheddLossView.as_view(), name="schedd-loss"),
    *action_urls(DAGS),
    *SCHEDD_ACTIONS,
]
