"""Admin of failure rules and of what failed. Rules are changed by operations, and tried on recorded failures."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from dags_app.failure_rules import MOST_SAMPLES, Trials, rules_try
from dags_app.models import (
    FailedInputFile,
    FailureGroup,
    FailureRule,
    FailureSample,
    UnreadableInput,
)
from wms2.admin import OF_REQUEST, ReadOnlyAdmin, badge_column, link_column, rows_admin
from wms2.admin.filters import recent_values
from wms2.admin.shown import list_url
from wms2.errors import ConfigurationError


@admin.register(FailureRule)
class FailureRuleAdmin(ReadOnlyAdmin):
    """Rules in the order in which they are tried."""

    list_display = (
        "order", "name", "enabled", "source", "codes", "message", "step", "site", badge_column("category"), "action", "note",
    )  # fmt: skip
    list_display_links = ("name",)
    list_filter = ("category", "action", "source", "enabled")
    search_fields = ("name", "note", "message", "=first_code")
    ordering = ("order", "id")
    list_per_page = 200

    @admin.display(description="exit codes")
    def codes(self, row: FailureRule) -> str:
        """One, or a range."""
        if row.first_code is None:
            return "any"
        return str(row.first_code) if row.last_code in (None, row.first_code) else f"{row.first_code}-{row.last_code}"

    def get_urls(self) -> list[URLPattern]:
        """The page of a trial beside the usual ones."""
        view = self.admin_site.admin_view(self.try_view)
        return [
            path("try/", view, name="dags_app_failurerule_try_all"),
            path("<int:rule_id>/try/", view, name="dags_app_failurerule_try"),
            *super().get_urls(),
        ]

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """Trials, and where it decided."""
        return [
            ("Try on recorded failures", reverse("admin:dags_app_failurerule_try", args=[row.pk])),
            ("Try all rules", reverse("admin:dags_app_failurerule_try_all")),
            ("What it decided", list_url(FailureGroup, f"rule={row.name}")),
        ]

    def try_view(self, request: HttpRequest, rule_id: int | None = None) -> HttpResponse:
        """Which recorded failures the rules, or this rule, would decide, and what would change."""
        rule = get_object_or_404(FailureRule, pk=rule_id) if rule_id is not None else None
        trials, problem = Trials(), ""
        try:
            trials = rules_try(tried=rule)
        except ConfigurationError as error:
            problem = str(error)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Try {rule.name} on recorded failures" if rule else "Try all rules on recorded failures",
            "opts": self.opts,
            "rule": rule,
            "trials": trials,
            "problem": problem,
            "changed": sum(trial.changed for trial in trials),
            "most": MOST_SAMPLES,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/wms2/rule_trial.html", context)


rows_admin(
    FailureGroup, "id", "workflow", badge_column("category"), "code", "step", "site", "rule", "attempts", "given_up", "last_at",
    filters=("category", recent_values("code"), recent_values("site"), recent_values("rule")), search=OF_REQUEST,
    links=(("Samples", FailureSample, "group"),),
)  # fmt: skip

rows_admin(
    FailureSample, "id", "group", link_column("dag", "DAG"), "unit", "node", "attempt", "job_id", "final", "=at",
    search={"group__workflow__request__request_name": "a request's whole name", "job_id": "a job's id"},
)  # fmt: skip

rows_admin(FailedInputFile, "lfn", "workflow", "attempts", "code", "site", "last_at", search={**OF_REQUEST, "lfn": "a whole LFN"})

rows_admin(
    UnreadableInput, "lfn", "workflow", "site", "code", "fence", "first_at", "last_at",
    search={**OF_REQUEST, "lfn": "a whole LFN"},
)  # fmt: skip
