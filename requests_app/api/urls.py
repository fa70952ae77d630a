"""Routes of requests_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from requests_app.api import (
    admission,
    dead_letters,
    drains,
    events,
    groups,
    harvests,
    input_files,
    leftovers,
    progress,
    reconcile,
    service,
    system,
    verbs,
    views,
)
from wms2.api import converters  # noqa: F401  <name:...>
from wms2.api.verbs import rows_urls

urlpatterns = [
    path("requests", views.RequestViewSet.as_view({"get": "list", "post": "create"}), name="request-list"),
    path(
        "requests/<name:request_name>",
        views.RequestViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="request-detail",
    ),
    path("requests/<name:request_name>/errors", views.RequestErrorsView.as_view(), name="request-errors"),
    path("requests/<name:request_name>/input-files", input_files.RequestInputFilesView.as_view(), name="request-input-files"),
    path("requests/<name:request_name>/leftovers", leftovers.RequestLeftoversView.as_view(), name="request-leftovers"),
    path("requests/<name:request_name>/progress", progress.RequestProgressView.as_view(), name="request-progress"),
    path("requests/<name:request_name>/release", verbs.RequestReleaseView.as_view(), name="request-release"),
    path("requests/<name:request_name>/invalidation", verbs.RequestInvalidationView.as_view(), name="request-invalidation"),
    path(
        "requests/<name:request_name>/invalidation/progress",
        verbs.InvalidationProgressView.as_view(),
        name="request-invalidation-progress",
    ),
    path("requests/<name:request_name>/versions", views.RequestVersionsView.as_view(), name="request-versions"),
    *verbs.VERBS,
    path("events", events.EventsView.as_view(), name="event-list"),
    path("events/stream", events.EventStreamView.as_view(), name="event-stream"),
    path("groups", groups.GroupViewSet.as_view({"get": "list"}), name="group-list"),
    path("groups/<name:name>", groups.GroupViewSet.as_view({"get": "retrieve"}), name="group-detail"),
    *groups.VERBS,
    *rows_urls("dead-letters", "dead-letter", dead_letters.DeadLetterViewSet, answers=dead_letters.AS_IT_WAS),
    *rows_urls("harvests", "harvest", harvests.HarvestViewSet),
    *rows_urls("workflows", "workflow", views.WorkflowViewSet),
    path("workflows/<uuid:pk>/rounds", views.WorkflowRoundsView.as_view(), name="workflow-rounds"),
    path("workflows/<uuid:pk>/status", views.WorkflowStatusView.as_view(), name="workflow-status"),
    path("schedds/<schedd:name>/drain", drains.ScheddDrainView.as_view(), name="schedd-drain"),
    path("admission/queue", system.AdmissionQueueView.as_view(), name="admission-queue"),
    path("admission/config", system.AdmissionConfigView.as_view(), name="admission-config"),
    path("admission/what-if", admission.WhatIfView.as_view(), name="admission-what-if"),
    *rows_urls("admission/limits", "admission-limit", admission.AdmissionLimitViewSet),
    path("lifecycle/status", system.LifecycleView.as_view(), name="lifecycle-status"),
    path("service/<name:pk>", service.ServiceLevelView.as_view(), name="service-detail"),
    *service.VERBS,
    path("lifecycle/reconcile", reconcile.ReconcileView.as_view(), name="lifecycle-reconcile"),
    path("lifecycle/reconcile/<int:pk>", reconcile.ReconciliationView.as_view(), name="reconciliation"),
    path("status", system.StatusView.as_view(), name="system-status"),
]
