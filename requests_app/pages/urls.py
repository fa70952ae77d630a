"""Addresses of the pages."""

from __future__ import annotations

from django.urls import path

from dags_app.api.urls import JOB
from requests_app.pages import (
    campaigns_views,
    dag_views,
    filtered_views,
    list_views,
    lost_files,
    missing_lumis_views,
    operations_views,
    outputs_views,
    search_views,
    sites_views,
    views,
)
from wms2.api import converters  # noqa: F401  <name:...>, <any-name:...>

urlpatterns = [
    path("search/", search_views.search_page, name="search"),
    path("", views.overview_page, name="overview"),
    path("requests/", views.board, name="board"),
    path("saved-views/", list_views.saved_view_new, name="saved-view-new"),
    path("saved-views/<int:pk>/delete/", list_views.saved_view_end, name="saved-view-end"),
    path("bulk/", list_views.bulk_runs, name="bulk-runs"),
    path("bulk/new/", list_views.bulk_new, name="bulk-new"),
    path("bulk/<uuid:pk>/", list_views.bulk_run, name="bulk-run-page"),
    path("alerts/", filtered_views.alerts, name="alerts"),
    path("campaigns/", filtered_views.campaigns, name="campaigns"),
    path("campaigns/<any-name:name>/", campaigns_views.campaign, name="campaign-page"),
    path("cases/", filtered_views.cases, name="cases"),
    path("failures/", filtered_views.failures, name="failures"),
    path("cases/lost-files/", lost_files.lost_files, name="lost-files-page"),
    path("outputs/", outputs_views.outputs, name="outputs"),
    path("outputs/blocks/<uuid:pk>/", outputs_views.block, name="block-page"),
    path("outputs/datasets/", outputs_views.dataset, name="dataset-page"),
    path("operations/", operations_views.operations_page, name="operations"),
    path("operations/activity/", operations_views.activity_page, name="activity"),
    path("operations/queue/", operations_views.queue_view, name="queue"),
    path("operations/schedds/<schedd:name>/", operations_views.schedd_page, name="schedd-page"),
    path("requests/<name:request_name>/", views.request_detail, name="request-page"),
    path("requests/<name:request_name>/watch/", list_views.request_watched, name="request-watched"),
    path("requests/<name:request_name>/progress.svg", views.request_chart, name="request-chart"),
    path("requests/<name:request_name>/missing-lumis/", missing_lumis_views.missing_lumis_of, name="missing-lumis-page"),
    path("dags/<uuid:pk>/", dag_views.dag_detail, name="dag-page"),
    path(f"{JOB}/report/", dag_views.job_report, name="report-page"),
    path(f"{JOB}/ads/", dag_views.job_ads, name="ads-page"),
    path("sites/", filtered_views.sites, name="sites"),
    path("sites/<name:name>/", sites_views.site, name="site-page"),
    path("groups/<any-name:name>/", views.group_detail, name="group-page"),
    path("dags/<uuid:pk>/logs/", views.logs_of_jobs, name="stored-logs-page"),
    path(f"{JOB}/logs/", views.job_logs, name="logs-page"),
]
