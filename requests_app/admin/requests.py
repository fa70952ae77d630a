"""Requests in the admin."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dags_app.models import DAG, LIVE_DAG, WorkUnit
from outputs_app.models import Effect, ProcessingBlock
from requests_app.admin.importing import import_view
from requests_app.models import EvaluationLease, Event, InputFile, Request, RequestTransition, Workflow
from requests_app.models import RequestStatus as S
from requests_app.selectors.admission import queued_rows
from requests_app.selectors.explain import explain
from wms2.admin import ReadOnlyAdmin, badge_column
from wms2.admin.shown import EMPTY, admin_url, badge, list_url
from wms2.identities.grants import is_operator
from wms2.models import AuditEntry
from wms2.web.formatting import exact

#: Transitions on a request's page, newest first; all of them are one link away.
SHOWN_TRANSITIONS = 20


@admin.display(description="what it waits for, or why it is held")
def why(row: Request) -> str:
    """One line."""
    text = explain(row).why or explain(row).todo
    return text if len(text) <= 160 else text[:159] + "…"


@admin.display(description="priority", ordering="priority")
def place(row: Request) -> SafeString:
    """Its priority, and whether it goes before all others."""
    if row.urgent:
        return format_html("{} {}", row.priority, badge("queued", "urgent"))
    return format_html("{}", row.priority)


@admin.display(description="place, expected start")
def queue_position(row: Any) -> str:
    """Of one that is queued; the page's rows have been given theirs together."""
    found = row.queue_position
    if found is None:
        return "-"
    return f"{found.place}, {found.expected_start:%Y-%m-%d %H:%M} UTC" if found.expected_start else f"{found.place}, not known"


@admin.register(Request)
class RequestAdmin(ReadOnlyAdmin):
    """Requests, newest first; the page ``/`` shows first what needs an operator."""

    list_display = (
        "request_name", badge_column("status", since="status_since"), why, place, queue_position, "campaign", "requestor",
    )  # fmt: skip
    list_filter = ("status", "hold_code", "urgent")
    search_fields = ("request_name", "campaign", "prep_id", "input_dataset", "requestor")
    search_help_text = "Part of a name, campaign, prep id, input dataset or requestor."
    ordering = ("-created_at",)
    sortable_by = ("request_name", "place")
    readonly_fields = ("status_detail", "related", "history", "evaluation")
    fieldsets = (
        (None, {"fields": ("status_detail", "related", "history")}),
        ("What was asked", {"fields": (
            "request_name", "requestor", "requestor_dn", "group", "campaign", "prep_id", "input_dataset", "priority", "urgent",
            "adaptive", "warnings", "notes", "created_at",
        )}),
        ("Where it stands", {"fields": (
            "status", "status_since", "stop_intent", "moving", "hold_code", "hold_reason", "waiting_for", "next_attempt_at",
            "failed_attempts", "last_error", "alert_code", "alerted_at", "queued_at", "completed_at", "updated_at",
        )}),
        ("Versions and relations", {"classes": ("collapse",), "fields": (
            "previous_version_request", "superseded_by_request", "cleanup_policy", "in_group", "group_ready_at", "depends_on",
            "derived_from", "derived_by", "flush",
        )}),
        ("Evaluation", {"classes": ("collapse",), "fields": ("id", "epoch", "evaluation")}),
        ("Document", {"classes": ("collapse",), "fields": (
            "splitting_params", "payload_config", "production_steps", "overrides", "request_data",
        )}),
    )  # fmt: skip

    def get_urls(self) -> list[URLPattern]:
        """The page of imports beside the usual ones."""
        view = self.admin_site.admin_view(partial(import_view, self))
        return [path("import/", view, name="requests_app_request_import"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, with the way to the page of imports for operators."""
        return super().changelist_view(request, {**(extra_context or {}), "may_import": is_operator(request.user)})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """With the turns of all queued requests of the page, counted together."""
        found = super().get_changelist_instance(request)
        queue_positions = queued_rows(found.result_list)
        for row in found.result_list:
            row.queue_position = queue_positions.get(row.pk)
        return found

    @admin.display(description="Status")
    def status_detail(self, row: Request) -> SafeString:
        """Status, why, what next, what to do."""
        explained = explain(row, dag=DAG.objects.filter(workflow__request=row, status__in=LIVE_DAG).first())
        lines = (("Why", explained.why), ("Alert", explained.alert), ("Next", explained.next), ("To do", explained.todo))
        text = format_html_join("", "<p><strong>{}:</strong> {}</p>", (line for line in lines if line[1]))
        return format_html("{} {}", badge(row.status, row.get_status_display()), text)

    @admin.display(description="Evaluation")
    def evaluation(self, row: Request) -> str:
        """When it was looked at last, when it is due again, and who looks at it now."""
        lease = EvaluationLease.objects.filter(request=row).first()
        if lease is None:
            return "never evaluated"
        due = "when something wakes it" + (f", at the latest {exact(lease.due_at)}" if lease.due_at else "")
        return f"last {exact(lease.evaluated_at)}; again {due}; lease {lease.epoch} of {lease.owner or 'no process'}"

    @admin.display(description="Belonging to it")
    def related(self, row: Request) -> SafeString:
        """Links to lists of what belongs to the request; nothing is counted."""
        workflow = Workflow.objects.filter(request=row).values_list("pk", flat=True).first()
        links = []
        if workflow is not None:
            of_workflow = f"workflow__id__exact={workflow}"
            links += [("workflow", reverse("admin:requests_app_workflow_change", args=[workflow]))]
            links += [("DAGs", list_url(DAG, of_workflow)), ("work units", list_url(WorkUnit, of_workflow))]
            links += [("blocks", list_url(ProcessingBlock, of_workflow)), ("input files", list_url(InputFile, of_workflow))]
        of_request = f"request__id__exact={row.pk}"
        links += [("effects", list_url(Effect, of_request)), ("transitions", list_url(RequestTransition, of_request))]
        links += [("events", list_url(Event, of_request)), ("audit", list_url(AuditEntry, f"q={row.request_name}"))]
        return format_html_join(" · ", '<a href="{}">{}</a>', ((url, text) for text, url in links))

    @admin.display(description="Latest transitions")
    def history(self, request: Request) -> Any:
        """Newest first, with who and why."""
        rows = RequestTransition.objects.filter(request=request).order_by("-id")[:SHOWN_TRANSITIONS]
        if not rows:
            return EMPTY
        cells = (
            (admin_url(row), exact(row.at), badge(row.to_status, S(row.to_status).label), row.actor, row.reason) for row in rows
        )
        body = format_html_join("", '<tr><td><a href="{}">{}</a></td><td>{}</td><td>{}</td><td>{}</td></tr>', cells)
        return format_html('<table class="history"><tbody>{}</tbody></table>', body)
