"""Admin of failure rules and of what failed. Rules are changed by verbs, and tried on recorded failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from dags_app.models import (
    FailedInputFile,
    FailureAction,
    FailureCategory,
    FailureGroup,
    FailureLog,
    FailureRule,
    FailureSample,
    UnreadableInput,
)
from dags_app.rule_trials import MOST_SAMPLES, rules_try
from requests_app.services import failure_rules as services
from wms2.admin import ReadOnlyAdmin, ReasonForm, Verb, badge_column, link_column, register_verbs, since_column
from wms2.admin.filters import recent_values
from wms2.admin.shown import list_url
from wms2.conf import conf


class ChangeForm(ReasonForm):
    """A rule's values and a reason."""

    order = forms.IntegerField(min_value=0, max_value=1_000_000, help_text="Lower ones are tried first; the first match decides.")
    first_code = forms.IntegerField(required=False, help_text="Exit code, or the first of a range.")
    last_code = forms.IntegerField(required=False, help_text="Last exit code of the range; empty: only the one.")
    message = forms.CharField(required=False, max_length=500, help_text="Regular expression, searched for in the message.")
    step = forms.CharField(required=False, max_length=200, help_text="Regular expression, searched for in the step's name.")
    site = forms.CharField(required=False, max_length=200, help_text="Regular expression, searched for in the site's name.")
    category = forms.ChoiceField(choices=FailureCategory.choices)
    action = forms.ChoiceField(choices=FailureAction.choices)
    cooloff_seconds = forms.IntegerField(required=False, min_value=0, help_text="Before the first retry; empty: as configured.")
    memory_factor = forms.FloatField(required=False, help_text="So many times the memory, up to what sites offer.")
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2, "cols": 80}), help_text="What it means.")
    field_order = (*(name for name in services.FIELDS if name != "name"), "reason")


class AddForm(ChangeForm):
    """A new rule."""

    name = forms.SlugField(max_length=100, help_text="Stands in post.json and in the errors of requests.")
    field_order = (*services.FIELDS, "reason")


def _seen(row: FailureRule) -> tuple[str, str]:
    return row.updated_at.isoformat(), "on" if row.enabled else "off"


def _foretold(*sentences: str) -> Any:
    told = [*sentences, "It holds for DAGs that are planned from now on; those that run keep the rules they were planned with."]
    return lambda rows: {row.pk: told for row in rows}


def _add(row: FailureRule, actor: str, data: Any) -> None:
    services.failure_rule_add(values=data, actor=actor, reason=data["reason"])


def _change(row: FailureRule, actor: str, data: Any) -> None:
    services.failure_rule_change(row=row, values=data, actor=actor, reason=data["reason"])


def _switch(enabled: bool) -> Any:
    def perform(row: FailureRule, actor: str, data: Any) -> None:
        services.failure_rule_enable(row=row, enabled=enabled, actor=actor, reason=data["reason"])

    return perform


def _take_back(row: FailureRule, actor: str, data: Any) -> None:
    services.failure_rule_take_back(row=row, actor=actor, reason=data["reason"])


register_verbs(
    FailureRule,
    Verb("change", "Change", _foretold("The rule becomes the operators': later releases leave it alone."), lambda _: "",
         _change, _seen, ChangeForm),
    Verb("copy", "Add one like it", _foretold("A new rule with the values below."), lambda _: "", _add, _seen, AddForm),
    Verb("enable", "Switch on", _foretold("The rule is tried."), lambda row: "It is on already." if row.enabled else "",
         _switch(True), _seen),
    Verb("disable", "Switch off", _foretold("The rule is passed over."), lambda row: "" if row.enabled else "It is off already.",
         _switch(False), _seen),
    Verb("take-back", "Take back", _foretold("The rule is removed; a shipped one comes back as shipped."),
         lambda row: "" if row.source == FailureRule.Source.OPERATOR else "It is as shipped.", _take_back, _seen),
)  # fmt: skip


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

    def verb_initial(self, verb: Verb, rows: Sequence[Any]) -> dict[str, Any]:
        """The values that the rule has."""
        return {name: getattr(rows[0], name) for name in services.FIELDS if verb.name == "change" or name != "name"}

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """A form that changes values concerns one rule only."""
        return {name: found for name, found in super().get_actions(request).items() if name not in ("change", "copy")}

    def try_view(self, request: HttpRequest, rule_id: int | None = None) -> HttpResponse:
        """Which recorded failures the rules, or this rule, would decide, and what would change."""
        rule = get_object_or_404(FailureRule, pk=rule_id) if rule_id is not None else None
        trials = rules_try(conf(), tried=rule)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Try {rule.name} on recorded failures" if rule else "Try all rules on recorded failures",
            "opts": self.opts,
            "rule": rule,
            "trials": trials,
            "changed": sum(trial.changed for trial in trials),
            "most": MOST_SAMPLES,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/wms2/rule_trial.html", context)


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin):
    """Like failures of a workflow, newest first."""

    list_display = (
        "id", link_column("workflow"), badge_column("category"), "code", "step", "site", "rule", "attempts", "given_up",
        since_column("last_at", "last"),
    )  # fmt: skip
    list_filter = ("category", recent_values("code"), recent_values("site"), recent_values("rule"))
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name",)
    search_help_text = "A request's whole name."
    ordering = ("-id",)

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """The newest of them."""
        return [("Samples", list_url(FailureSample, f"group__id__exact={row.pk}"))]


@admin.register(FailureSample)
class FailureSampleAdmin(ReadOnlyAdmin):
    """Failed attempts that are kept as samples, newest first."""

    list_display = ("id", link_column("group"), link_column("dag", "DAG"), "unit", "node", "attempt", "job_id", "final", "at")
    list_select_related = ("group", "dag")
    exact_search = ("group__workflow__request__request_name", "job_id")
    search_help_text = "A request's whole name, or a job's id."
    ordering = ("-id",)


@admin.register(FailedInputFile)
class FailedInputFileAdmin(ReadOnlyAdmin):
    """Input files that failures named, newest first."""

    list_display = ("lfn", link_column("workflow"), "attempts", "code", "site", since_column("last_at", "last"))
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name", "lfn")
    search_help_text = "A request's whole name, or a file's."
    ordering = ("-id",)


@admin.register(UnreadableInput)
class UnreadableInputAdmin(ReadOnlyAdmin):
    """Where and when input files could not be read, newest first."""

    list_display = (
        "lfn",
        link_column("workflow"),
        "site",
        "code",
        "fence",
        since_column("first_at", "first"),
        since_column("last_at", "last"),
    )
    list_select_related = ("workflow",)
    exact_search = ("workflow__request__request_name", "lfn")
    search_help_text = "A request's whole name, or a file's."
    ordering = ("-id",)


@admin.register(FailureLog)
class FailureLogAdmin(ReadOnlyAdmin):
    """How far each DAG's failure log has been read."""

    list_display = ("directory_id", "offset_bytes", "problem")
    exact_search = ("pk",)
    search_help_text = "A DAG directory's id."
    ordering = ("directory_id",)
