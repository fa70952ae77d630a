"""Routes of requests_app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from requests_app.api import dags, errors, input_files, schedds, sites, system, verb_views, views
from wms2.api import converters  # noqa: F401  <name:...>

urlpatterns = [
    path("requests", views.RequestViewSet.as_view({"get": "list", "post": "create"}), name="request-list"),
    path(
        "requests/<name:request_name>",
        views.RequestViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="request-detail",
    ),
    path("requests/<name:request_name>/errors", errors.RequestErrorsView.as_view(), name="request-errors"),
    path("requests/<name:request_name>/input-files", input_files.RequestInputFilesView.as_view(), name="request-input-files"),
    path(
        "requests/<name:request_name>/restore-files", input_files.RequestRestoreFilesView.as_view(), name="request-restore-files"
    ),
    path("requests/<name:request_name>/hold", verb_views.RequestHoldView.as_view(), name="request-hold"),
    path("requests/<name:request_name>/stop", verb_views.RequestStopView.as_view(), name="request-stop"),
    path("requests/<name:request_name>/release", verb_views.RequestReleaseView.as_view(), name="request-release"),
    path("requests/<name:request_name>/fail", verb_views.RequestFailView.as_view(), name="request-fail"),
    path("requests/<name:request_name>/restart", verb_views.RequestRestartView.as_view(), name="request-restart"),
    path("requests/<name:request_name>/invalidate", verb_views.RequestInvalidateView.as_view(), name="request-invalidate"),
    path("requests/<name:request_name>/invalidation", verb_views.RequestInvalidationView.as_view(), name="request-invalidation"),
    path("requests/<name:request_name>/versions", views.RequestVersionsView.as_view(), name="request-versions"),
    path("workflows", views.WorkflowViewSet.as_view({"get": "list"}), name="workflow-list"),
    path("workflows/<uuid:pk>", views.WorkflowViewSet.as_view({"get": "retrieve"}), name="workflow-detail"),
    path("workflows/<uuid:pk>/status", views.WorkflowStatusView.as_view(), name="workflow-status"),
    path("dags/<uuid:pk>/hold", dags.DagHoldView.as_view(), name="dag-hold"),
    path("dags/<uuid:pk>/release", dags.DagReleaseView.as_view(), name="dag-release"),
    path("dags/<uuid:pk>/remove", dags.DagRemoveView.as_view(), name="dag-remove"),
    path("dags/<uuid:pk>/rescue", dags.DagRescueView.as_view(), name="dag-rescue"),
    path("sites/<name:pk>", sites.SiteView.as_view(), name="site-detail"),
    path("sites/<name:pk>/enable", sites.SiteEnableView.as_view(), name="site-enable"),
    path("sites/<name:pk>/disable", sites.SiteDisableView.as_view(), name="site-disable"),
    path("sites/<name:pk>/drain", sites.SiteDrainView.as_view(), name="site-drain"),
    path("sites/<name:pk>/ban", sites.SiteBanView.as_view(), name="site-ban"),
    path("schedds/<schedd:name>/loss", schedds.ScheddLossView.as_view(), name="schedd-loss"),
    path("schedds/<schedd:name>/confirm-lost", schedds.ScheddConfirmLostView.as_view(), name="schedd-confirm-lost"),
    path("effects/<int:pk>/retry", system.EffectRetryView.as_view(), name="effect-retry"),
    path("admission/queue", system.AdmissionQueueView.as_view(), name="admission-queue"),
    path("admission/config", system.AdmissionConfigView.as_view(), name="admission-config"),
    path("lifecycle/status", system.LifecycleView.as_view(), name="lifecycle-status"),
    path("status", system.StatusView.as_view(), name="system-status"),
]
