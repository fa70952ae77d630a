"""Verbs on sites, bans and schedds. How many DAGs run there is told by ``dags_app.verbs``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sites_app.bans import bans_active
from sites_app.models import Schedd, ScheddState, Site, SiteBan, SiteStatus
from sites_app.schedds import state_refused
from sites_app.services import (
    schedd_change_state,
    schedd_drain,
    site_ban_by_operator,
    site_change_status,
    site_note,
    site_unban_by_operator,
)
from sites_app.statuses import status_refused
from wms2.conf import conf
from wms2.errors import FieldRefused
from wms2.verbs import Field, Kind, Noun, Verb, declare, told_of_each
from wms2.words import counted

#: The field that the service calls ``drain_until``.
UNTIL = Field("until", Kind.MOMENT, "UTC, e.g. 2026-12-24 08:00; the site is enabled again then; without it, by a person")
_REQUEST = Field("request_name", Kind.NAME, "only for this request; without it, for every request")


def site_repeated(status: SiteStatus, site: Site, actor: str, given: Mapping[str, Any]) -> bool:
    """Whether the site has this status, and for a drain its end, already."""
    return (site.status, site.drain_until) == (status, given.get("drain_until"))


def _until(given: dict[str, Any]) -> dict[str, Any]:
    return {"drain_until" if name == "until" else name: value for name, value in given.items()}


def _of_workflow(given: dict[str, Any]) -> dict[str, Any]:
    """The workflow of the request that was named."""
    name = given.pop("request_name", None)
    if name is None:
        return given
    workflow = SiteBan._meta.get_field("workflow").related_model._default_manager.filter(request_id=name).first()
    if workflow is None:
        raise FieldRefused("request_name", "no such request, or it has no workflow yet")
    return {**given, "workflow": workflow}


def _site_seen(site: Site) -> tuple[str, str]:
    bans = bans_active(site.name).count()
    return f"{site.status} {bans}", site.get_status_display() + (f", {counted(bans, 'ban')}" if bans else "")


def _status_verb(name: str, label: str, status: SiteStatus, does: str, told: str, *fields: Field, path: str | None) -> Verb:
    drains = status is SiteStatus.DRAINING  # a drain may be given another end
    return Verb(
        name,
        label,
        does,
        partial(site_change_status, status=status),
        told_of_each(lambda site: [told]),
        fields,
        (lambda site: "") if drains else partial(status_refused, status=status),
        partial(site_repeated, status),
        _until,
        path=path,
    )


def _ban_preview(site: Site) -> list[str]:
    days = conf().site_ban_duration_days
    who = "No new submission of any request, or of the one named, sends work there,"
    return [f"{who} for {days:g} days or until the time given.", "What runs there goes on."]


_CLOSED = "No new submission sends work there until a person enables it; what runs there goes on."

declare(
    Noun(Site, "site", "site", lambda name: Site.objects.filter(pk=name), _site_seen, "sites/<name:pk>"),
    _status_verb(
        "enable", "Enable", SiteStatus.ENABLED,
        "Let new work go to the site again. Ends a drain and a closure; bans have a verb of their own.",
        "New work may go to it from the next submission on.", path="enable",
    ),
    _status_verb(
        "drain", "Drain", SiteStatus.DRAINING, "No new work for the site, for good or until a time; what runs there goes on.",
        "No new submission sends work there; what runs there goes on.", UNTIL, path="drain",
    ),
    _status_verb(
        "disable", "Disable", SiteStatus.DISABLED,
        "Close the site for new work, until a person enables it. CRIC's sync does not undo it.", _CLOSED, path="disable",
    ),
    _status_verb(
        "maintenance", "Maintenance", SiteStatus.MAINTENANCE,
        "Close the site for new work while it is being worked on, until a person enables it.", _CLOSED, path=None,
    ),
    Verb(
        "ban", "Ban",
        "No new submission sends work there, of one request or of all, always with an end; running DAGs go on. The same ban again"
        " prolongs it.",
        site_ban_by_operator, told_of_each(_ban_preview),
        (
            _REQUEST,
            Field("expires_at", Kind.MOMENT, "UTC; without it, the usual number of days (site_ban_duration_days)"),
            Field("insist", Kind.FLAG, "also when more than half of the sites would be banned then"),
        ),
        prepare=_of_workflow, path="ban",
    ),
    Verb(
        "unban", "Lift bans", "Lift every ban of the site in force, or that of one request. None in force is no error.",
        site_unban_by_operator,
        told_of_each(lambda site: [f"{b.reason} (until {b.expires_at:%Y-%m-%d %H:%M} UTC)" for b in bans_active(site.name)]),
        (Field("request_name", Kind.NAME, "only the ban of this request"),),
        lambda site: "" if bans_active(site.name).exists() else "No ban is in force.",
        prepare=_of_workflow, path="ban", method="delete",
    ),
    Verb(
        "note", "Note", "Put operators' notes about the site in place of the old ones.", site_note,
        told_of_each(lambda site: ["The notes below are kept with the site; WMS2 itself does not act on them."]),
        (
            Field(
                "notes", Kind.NOTES, 'operators\' notes about the site, e.g. {"contact": "…"}; in place of the old ones',
                rows=4,
            ),
        ),
        initial=lambda site: {"notes": site.config_data},
    ),
)  # fmt: skip


def _lift(ban: SiteBan, actor: str, reason: str) -> None:
    site_unban_by_operator(site=ban.site, actor=actor, reason=reason, ban_id=ban.pk)


declare(
    Noun(
        SiteBan, "ban", "ban", lambda key: SiteBan.objects.filter(pk=key),
        lambda ban: (str(ban.removed_at), "lifted" if ban.removed_at else "in force"),
    ),
    Verb(
        "lift", "Lift", "Lift a single ban.", _lift, told_of_each(lambda ban: ["New submissions may send work there again."]),
        refused=lambda ban: "" if ban.removed_at is None else f"It was lifted by {ban.removed_by}.",
    ),
)  # fmt: skip


def _state_verb(name: str, label: str, state: ScheddState, does: str) -> Verb:
    return Verb(
        name,
        label,
        does,
        partial(schedd_change_state, state=state),
        told_of_each(lambda schedd: [does]),
        refused=partial(state_refused, state=state),
    )


def _drains_so(schedd: Schedd, actor: str, given: Mapping[str, Any]) -> bool:
    wanted = given.get("at_once", 1) if given.get("move") else 0
    return (schedd.state, schedd.drain_at_once) == (ScheddState.DRAINING, wanted)


_DRAIN = (
    "No new DAG goes to it, and what is queued for it goes elsewhere. Those at it run to their end, or are moved to other"
    " schedds. Asked for again it goes on in the other way; enabling takes it back."
)


declare(
    Noun(
        Schedd, "schedd", "schedd", lambda name: Schedd.objects.filter(name=name),
        lambda schedd: (schedd.state, schedd.get_state_display()), "schedds/<schedd:name>",
    ),
    _state_verb("enable", "Enable", ScheddState.ENABLED, "New DAGs may go to it. A drain is taken back."),
    Verb(
        "drain", "Drain", _DRAIN, schedd_drain, told_of_each(lambda schedd: [_DRAIN]),
        (
            Field("move", Kind.FLAG, "DAGs that run there are stopped one after the other, and go on elsewhere"),
            Field("at_once", Kind.WHOLE, "how many are moved at a time; without it one", least=1, most=100),
        ),
        repeated=_drains_so, path="drain",
    ),
    _state_verb("disable", "Disable", ScheddState.DISABLED, "No new DAG goes to it; those at it are still watched."),
)  # fmt: skip
