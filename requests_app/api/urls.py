"""Routes of requests_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from requests_app.api import (
    actions,
    admission,
    alerts,
    campaigns,
    events,
    failures,
    lost_files,
    parts,
    rows,
    saved_views,
    search,
    series,
    system,
    views,
)
from requests_app.harvesting.api import HarvestViewSet
from wms2.api import converters  # noqa: F401  <name:...>
from wms2.api.actions import rows_urls

_REQUEST = "requests/<name:request_name>"

urlpatterns = [
    path("requests", views.RequestViewSet.as_view({"get": "list", "post": "create"}), name="request-list"),
    path(
        _REQUEST,
        views.RequestViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="request-detail",
    ),
    path(f"{_REQUEST}/errors", parts.request_errors_view, name="request-errors"),
    path(f"{_REQUEST}/input-files", parts.request_input_files_view, name="request-input-files"),
    path(f"{_REQUEST}/leftovers", parts.request_leftovers_view, name="request-leftovers"),
    path(f"{_REQUEST}/missing-lumis", parts.RequestMissingLumisView.as_view(), name="request-missing-lumis"),
    path(f"{_REQUEST}/missing-lumis.json", parts.RequestMissingLumisJsonView.as_view(), name="request-missing-lumis-json"),
    path(f"{_REQUEST}/progress", parts.request_progress_view, name="request-progress"),
    path(f"{_REQUEST}/series", series.RequestSeriesView.as_view(), name="request-series"),
    path(f"{_REQUEST}/release", actions.RequestReleaseView.as_view(), name="request-release"),
    path(f"{_REQUEST}/invalidation", parts.RequestInvalidationView.as_view(), name="request-invalidation"),
    path(f"{_REQUEST}/invalidation/progress", parts.invalidation_progress_view, name="request-invalidation-progress"),
    path(f"{_REQUEST}/versions", parts.request_versions_view, name="request-versions"),
    *actions.REQUEST_ACTIONS,
    *rows_urls("campaigns", "campaign", campaigns.CampaignViewSet),
    path("failures", failures.FailuresView.as_view(), name="failure-matrix"),
    path("events", events.EventsView.as_view(), name="event-list"),
    path("events/stream", events.EventStreamView.as_view(), name="event-stream"),
    path("groups", rows.GroupViewSet.as_view({"get": "list"}), name="group-list"),
    path("groups/<name:name>", rows.GroupViewSet.as_view({"get": "retrieve"}), name="group-detail"),
    *rows.GROUP_ACTIONS,
    *rows_urls("dead-letters", "dead-letter", rows.DeadLetterViewSet, answers=rows.DEAD_LETTER_ANSWERS),
    *rows_urls("alerts", "alert", alerts.AlertViewSet),
    *rows_urls("alert-channels", "alert-channel", alerts.AlertChannelViewSet, answers=alerts.CHANNEL_ANSWERS),
    *rows_urls("alert-routes", "alert-route", alerts.AlertRouteViewSet, answers=alerts.ROUTE_ANSWERS),
    path("lost-files", lost_files.LostFilesView.as_view(), name="lost-files"),
    path("lost-files/preview", lost_files.LostFilesPreviewView.as_view(), name="lost-files-preview"),
    path("search", search.SearchView.as_view(), name="search-api"),
    path("saved-views", saved_views.SavedViewViewSet.as_view({"get": "list", "post": "create"}), name="saved-view-list"),
    path(
        "saved-views/<int:pk>",
        saved_views.SavedViewViewSet.as_view({"get": "retrieve", "delete": "destroy"}),
        name="saved-view-detail",
    ),
    *rows_urls("harvests", "harvest", HarvestViewSet),
    *rows_urls("workflows", "workflow", views.WorkflowViewSet),
    path("workflows/<uuid:pk>/rounds", views.WorkflowRoundsView.as_view(), name="workflow-rounds"),
    path("workflows/<uuid:pk>/status", views.WorkflowStatusView.as_view(), name="workflow-status"),
    path("schedds/<schedd:name>/drain", system.ScheddDrainView.as_view(), name="schedd-drain"),
    path("admission/queue", admission.AdmissionQueueView.as_view(), name="admission-queue"),
    path("admission/config", admission.AdmissionConfigView.as_view(), name="admission-config"),
    path("admission/what-if", admission.WhatIfView.as_view(), name="admission-what-if"),
    *rows_urls("admission/limits", "admission-limit", admission.AdmissionLimitViewSet),
    path("lifecycle/status", system.LifecycleView.as_view(), name="lifecycle-status"),
    path("service/<name:pk>", system.service_view, name="service-detail"),
    *system.SERVICE_ACTIONS,
    path("lifecycle/reconcile", system.ReconcileView.as_view(), name="lifecycle-reconcile"),
    path("lifecycle/reconcile/<int:pk>", system.reconciliation_view, name="reconciliation"),
    path("series", series.SeriesView.as_view(), name="series"),
    path("status", system.StatusView.as_view(), name="system-status"),
]
