"""Buttons on sites and bans: the services that the REST interface calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django import forms

from dags_app.models import DAG, LIVE_DAG
from requests_app.models import Workflow
from requests_app.services.sites import site_ban_by_operator, site_change_status, site_note, site_unban_by_operator
from sites_app.bans import bans_active
from sites_app.models import Site, SiteBan, SiteStatus
from wms2.admin import ReasonForm, Verb, register_verbs
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.words import counted

Data = Mapping[str, Any]


class DrainForm(ReasonForm):
    """A reason and an end."""

    until = forms.DateTimeField(required=False, help_text="UTC, e.g. 2026-12-24 08:00; the site is enabled again then.")
    field_order = ("until", "reason")


class NoteForm(ReasonForm):
    """A reason and the notes."""

    notes = forms.JSONField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 80}),
        help_text='Operators\' notes about the site, e.g. {"contact": "…"}; in place of the old ones.',
    )
    field_order = ("notes", "reason")

    def clean_notes(self) -> dict[str, Any]:
        """Names and values."""
        found = self.cleaned_data["notes"] or {}
        if not isinstance(found, dict):
            raise forms.ValidationError("Give names and values in braces.")
        return found


class BanForm(ReasonForm):
    """For whom, a reason, an end, and whether the guard is overruled."""

    request_name = forms.CharField(required=False, max_length=150, help_text="Only this request; without it, every request.")
    until = forms.DateTimeField(required=False, help_text="UTC; without it, the usual number of days.")
    insist = forms.BooleanField(required=False, help_text="Also when more than half of the sites would be banned then.")
    field_order = ("request_name", "until", "insist", "reason")


_TEXTS = {
    SiteStatus.ENABLED: "New work may go to it from the next submission on.",
    SiteStatus.DRAINING: "No new submission sends work there; what runs there goes on.",
    SiteStatus.MAINTENANCE: "No new submission sends work there until a person enables it; what runs there goes on.",
    SiteStatus.DISABLED: "No new submission sends work there until a person enables it; what runs there goes on.",
}


def _seen(site: Site) -> tuple[str, str]:
    bans = bans_active(site.name).count()
    return f"{site.status} {bans}", site.get_status_display() + (f", {counted(bans, 'ban')}" if bans else "")


def _foretold(status: SiteStatus, sites: Sequence[Site]) -> dict[str, list[str]]:
    live = DAG.objects.filter(status__in=LIVE_DAG).count()
    return {site.pk: [_TEXTS[status], f"{counted(live, 'DAG')} live now; they are not touched."] for site in sites}


def _refused(status: SiteStatus, site: Site) -> str:
    return f"It is {status.label.lower()} already." if site.status == status and status is not SiteStatus.DRAINING else ""


def _set(status: SiteStatus, site: Site, actor: str, data: Data) -> None:
    until = data.get("until")
    site_change_status(site=site, status=status, actor=actor, reason=data["reason"], drain_until=until)


def _status_verb(name: str, label: str, status: SiteStatus, form: type[ReasonForm] = ReasonForm) -> Verb:
    return Verb(name, label, partial(_foretold, status), partial(_refused, status), partial(_set, status), _seen, form)


def _ban_foretold(sites: Sequence[Site]) -> dict[str, list[str]]:
    days = conf().site_ban_duration_days
    return {
        site.pk: [
            "No new submission of any request, or of the one named, sends work there,"
            f" for {days:g} days or until the time given.",
            "What runs there goes on.",
        ]
        for site in sites
    }


def _ban(site: Site, actor: str, data: Data) -> None:
    site_ban_by_operator(
        site=site,
        actor=actor,
        reason=data["reason"],
        workflow=_workflow(data.get("request_name", "")),
        expires_at=data.get("until"),
        insist=bool(data.get("insist")),
    )


def _workflow(request_name: str) -> Workflow | None:
    if not request_name:
        return None
    workflow = Workflow.objects.filter(request_id=request_name).first()
    if workflow is None:
        raise InvalidTransition(f"there is no request {request_name}, or it has no workflow yet")
    return workflow


def _unban_foretold(sites: Sequence[Site]) -> dict[str, list[str]]:
    return {
        site.pk: [f"{ban.reason} (until {ban.expires_at:%Y-%m-%d %H:%M} UTC)" for ban in bans_active(site.name)] for site in sites
    }


def _unban(site: Site, actor: str, data: Data) -> None:
    site_unban_by_operator(site=site, actor=actor, reason=data["reason"])


def _note_foretold(sites: Sequence[Site]) -> dict[str, list[str]]:
    return {site.pk: ["The notes below are kept with the site; WMS2 itself does not act on them."] for site in sites}


def _note(site: Site, actor: str, data: Data) -> None:
    site_note(site=site, notes=data["notes"], actor=actor, reason=data["reason"])


register_verbs(
    Site,
    _status_verb("enable", "Enable", SiteStatus.ENABLED),
    _status_verb("drain", "Drain", SiteStatus.DRAINING, DrainForm),
    _status_verb("disable", "Disable", SiteStatus.DISABLED),
    _status_verb("maintenance", "Maintenance", SiteStatus.MAINTENANCE),
    Verb("ban", "Ban", _ban_foretold, lambda _: "", _ban, _seen, BanForm),
    Verb(
        "unban", "Lift bans", _unban_foretold, lambda site: "" if bans_active(site.name).exists() else "No ban is in force.",
        _unban, _seen,
    ),
    Verb("note", "Note", _note_foretold, lambda _: "", _note, _seen, NoteForm),
)  # fmt: skip


def _lift(ban: SiteBan, actor: str, data: Data) -> None:
    site_unban_by_operator(site=ban.site, actor=actor, reason=data["reason"], ban_id=ban.pk)


register_verbs(
    SiteBan,
    Verb(
        "lift",
        "Lift",
        lambda bans: {ban.pk: ["New submissions may send work there again."] for ban in bans},
        lambda ban: "" if ban.removed_at is None else f"It was lifted by {ban.removed_by}.",
        _lift,
        lambda ban: (str(ban.removed_at), "lifted" if ban.removed_at else "in force"),
    ),
)
