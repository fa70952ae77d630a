"""Operations on sites, bans, pools and schedds. ``dags_app.actions`` adds how many DAGs run there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sites_app import pools
from sites_app.bans import OF_LISTS, bans_active, bans_judged, stands_for_lists
from sites_app.models import Pool, PoolState, Schedd, ScheddState, Site, SiteBan, SiteStatus
from sites_app.schedds import state_refused
from sites_app.services import (
    follow_refused,
    schedd_change_state,
    schedd_drain,
    site_ban_by_operator,
    site_change_status,
    site_follow,
    site_note,
    site_unban_by_operator,
    status_refused,
)
from wms2.actions import Action, Field, Kind, Owned, ResourceType, Role, declare, preview_each
from wms2.errors import FieldRefused
from wms2.runtime.in_force import in_force
from wms2.web.formatting import counted

#: On one's own sites.
OWN = (Role.SITE_ADMIN, Role.OPERATOR)
#: The field that the service calls ``drain_until``. Who may not enable a site says no time at which it is enabled.
UNTIL = Field(
    "until", Kind.MOMENT, "UTC, e.g. 2026-12-24 08:00; it is enabled again then; without it, by a person", roles=(Role.OPERATOR,)
)
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


def _status_action(name: str, label: str, status: SiteStatus, does: str, **more: Any) -> Action:
    return Action(
        name, label, does, partial(site_change_status, status=status), repeated=partial(site_repeated, status), prepare=_until,
        inverse="disable" if status is SiteStatus.ENABLED else "enable", stops=status is not SiteStatus.ENABLED, **more,
    )  # fmt: skip


#: Their landing jobs have the sites they were rendered with.
_STILL = "DAGs that run already may still begin work units there, and what runs there goes on."


def _ban_preview(site: Site) -> list[str]:
    days = in_force().site_ban_duration_days
    who = "No new submission of any request, or of the one named, sends work there,"
    return [_STILL, f"{who} for {days:g} days or until the time given."]


def _unban_refused(site: Site) -> str:
    """Pages read with the site whether it has bans (``has_bans``)."""
    has_bans = getattr(site, "has_bans", None)
    has_bans = bans_judged(site.name).exists() if has_bans is None else has_bans
    return "" if has_bans else "No ban is in force; what stands for a request's site lists stays."


declare(
    ResourceType(
        Site, "site", "site", lambda name: Site.objects.filter(pk=name), _site_seen, "sites/<name:pk>",
        owner=lambda site: Owned(sites=frozenset({site.pk})),
        fitting=lambda site: ("unban", "drain", "ban") if site.status == SiteStatus.ENABLED else ("enable", "unban", "note"),
        themes={"New work": ("enable", "drain", "disable", "maintenance", "follow"), "Bans": ("ban", "unban")},
    ),
    _status_action(
        "enable", "Enable", SiteStatus.ENABLED,
        "Let new work go to the site again from the next submission on. Ends a drain and a closure; bans have a verb of their"
        " own.",
        refused=partial(status_refused, status=SiteStatus.ENABLED), path="enable",
    ),
    _status_action(
        "drain", "Drain", SiteStatus.DRAINING,  # one that drains may be given another end
        f"No new submission sends work to the site, for good or until a time. {_STILL}", fields=(UNTIL,), path="drain",
        roles=OWN,
    ),
    _status_action(
        "disable", "Disable", SiteStatus.DISABLED,
        f"Close the site for new work, until a person enables it. CRIC's sync does not undo it. {_STILL}",
        refused=partial(status_refused, status=SiteStatus.DISABLED), path="disable",
    ),
    _status_action(
        "maintenance", "Maintenance", SiteStatus.MAINTENANCE,
        f"Close the site for new work while it is being worked on, until a person enables it. {_STILL}",
        refused=partial(status_refused, status=SiteStatus.MAINTENANCE), roles=OWN,
    ),
    Action(
        "follow", "Follow SSB",
        "Leave the site's status to the Site Status Board again, in place of an operator's decision. It stays as it is until SSB"
        " says otherwise; that is read every ten minutes.",
        site_follow, refused=follow_refused, path="follow",
    ),
    Action(
        "ban", "Ban",
        "No new submission sends work there, of one request or of all, always with an end; running DAGs go on. The same ban again"
        " prolongs it.",
        site_ban_by_operator, preview_each(_ban_preview),
        (
            _REQUEST,
            Field("expires_at", Kind.MOMENT, "UTC; without it, the usual number of days (site_ban_duration_days)"),
            Field(
                "insist", Kind.FLAG, "also when more than half of the sites would be banned then", roles=(Role.OPERATOR,)
            ),
        ),
        prepare=_of_workflow, path="ban", stops=True, roles=OWN, inverse="unban",
    ),
    Action(
        "unban", "Lift bans",
        "Lift every ban of the site in force, or that of one request; what stands for a request's site lists stays. None in force"
        " is no error.",
        site_unban_by_operator,
        preview_each(lambda site: [f"{b.reason} (until {b.expires_at:%Y-%m-%d %H:%M} UTC)" for b in bans_judged(site.name)]),
        (Field("request_name", Kind.NAME, "only the ban of this request"),),
        _unban_refused,
        prepare=_of_workflow, path="ban", method="delete", roles=OWN, inverse="ban",
    ),
    Action(
        "note", "Note", "Put operators' notes about the site in place of the old ones. WMS2 does not act on them.", site_note,
        None,
        (
            Field(
                "notes", Kind.NOTES, 'operators\' notes about the site, e.g. {"contact": "…"}; in place of the old ones',
                rows=4,
            ),
        ),
        initial=lambda site: {"notes": site.config_data}, roles=OWN, inverse="note",
    ),
)  # fmt: skip


def _lift(ban: SiteBan, actor: str, reason: str) -> None:
    site_unban_by_operator(site=ban.site, actor=actor, reason=reason, ban_id=ban.pk)


declare(
    ResourceType(
        SiteBan, "ban", "ban", lambda key: SiteBan.objects.filter(pk=key),
        lambda ban: (str(ban.removed_at), "lifted" if ban.removed_at else "in force"),
        owner=lambda ban: Owned(sites=frozenset({ban.site_id})),
    ),
    Action(
        "lift", "Lift", "Lift a single ban: new submissions may send work there again.", _lift, roles=OWN,
        refused=lambda ban: (
            f"It was lifted by {ban.removed_by}." if ban.removed_at else OF_LISTS if stands_for_lists(ban) else ""
        ),
    ),
)  # fmt: skip


def _state_action(name: str, label: str, state: ScheddState, does: str, inverse: str) -> Action:
    return Action(
        name, label, does, partial(schedd_change_state, state=state), refused=partial(state_refused, state=state),
        repeated=lambda schedd, actor, given: schedd.state == state, path=name, stops=state is not ScheddState.ENABLED,
        inverse=inverse,
    )  # fmt: skip


def _drains_so(schedd: Schedd, actor: str, given: Mapping[str, Any]) -> bool:
    wanted = given.get("at_once", 1) if given.get("move") else 0
    return (schedd.state, schedd.drain_at_once) == (ScheddState.DRAINING, wanted)


_DRAIN = (
    "No new DAG goes to it, and what is queued for it goes elsewhere. Those at it run to their end, or are moved to other"
    " schedds. Asked for again it goes on in the other way; enabling takes it back."
)


def _remove_action(service: Any) -> Action:
    return Action("remove", "Remove", _FORGET, service, refused=pools.remove_refused, path="remove")


def _pool_add(pool: Pool | None, actor: str, reason: str, **values: str) -> Pool:
    return pools.pool_add(actor=actor, reason=reason, **values)


_FORGET = "Forget it; refused where DAGs ran: then it is kept, disabled. A schedd that a collector names is discovered again."
_LIMITS = (
    Field("submit_root", help="where its DAG directories lie, by its path; another one has to be checked", length=1000),
    Field("max_dagman_slots", Kind.WHOLE, "DAGMan processes it may run: outer and inner ones together", least=2, most=1_000_000),
)
_PLACE = (
    Field("collector", help="host:port", required=True, length=255),
    Field("file_system", help="schedds of pools with the same name see the same DAG directories", required=True, length=100),
    Field("token_dir", help="directory of its IDTOKENs, by its path; empty: the configured one", length=1000, blank=""),
)
POOL_ADD = Action(
    "add-pool", "Add one like it",
    "A new pool with the values below; its collector is asked for schedds, which are disabled: each is checked before it is"
    " enabled.",
    _pool_add, None,
    (Field("name", help="of the new pool", required=True, length=100), *_PLACE),
    initial=lambda pool: {one.name: getattr(pool, one.name) for one in _PLACE}, single=True, inverse="remove",
)  # fmt: skip


def _pool_state_action(name: str, label: str, state: PoolState, does: str, inverse: str) -> Action:
    return Action(
        name, label, does, partial(pools.pool_change_state, state=state), refused=partial(state_refused, state=state),
        repeated=lambda pool, actor, given: pool.state == state, path=name, inverse=inverse,
    )  # fmt: skip


declare(
    ResourceType(
        Pool, "pool", "pool", lambda name: Pool.objects.filter(pk=name), lambda pool: (pool.state, pool.get_state_display()),
        "pools/<pool:pk>",
    ),
    _pool_state_action(
        "enable", "Enable", PoolState.ENABLED, "Its collector is asked; new DAGs may go to its enabled schedds.", "disable"
    ),
    _pool_state_action(
        "disable", "Disable", PoolState.DISABLED, "No new DAG goes to its schedds; those at them run on and are still watched.",
        "enable",
    ),
    Action(
        "ask", "Ask now", "Ask its collector now for schedds and slots. Schedds that are new are written down, disabled.",
        pools.pool_ask, path="ask", outside=True,
    ),
    Action(
        "add-schedd", "Add a schedd", "Write down a schedd that its collector has not named yet; disabled until it is checked.",
        pools.schedd_add, None,
        (Field("name", help="its name in the collector", required=True, length=255), *_LIMITS), path="schedds", single=True,
    ),
    POOL_ADD,
    Action(
        "change-pool", "Change",
        "Where and how the pool, its schedds and the DAGs that run there are asked, from the next question on.",
        pools.pool_change, None, _PLACE, initial=POOL_ADD.initial, path="change", single=True, inverse="change-pool",
    ),
    _remove_action(lambda pool, **who: pools.row_remove(row=pool, **who)),
)  # fmt: skip

#: What a state calls for, the likeliest first; others may be enabled once they are checked.
_SCHEDD_FITTING = {ScheddState.ENABLED: ("drain", "disable"), ScheddState.DRAINING: ("enable", "drain", "disable")}
#: Some of them are added by apps above.
_SCHEDD_THEMES = {
    "New DAGs": ("enable", "drain", "disable", "check"),
    "Strays and losses": ("adopt-strays", "remove-strays", "lost"),
}

declare(
    ResourceType(
        Schedd, "schedd", "schedd", lambda name: Schedd.objects.filter(name=name),
        lambda schedd: (schedd.state, schedd.get_state_display()), "schedds/<schedd:name>",
        fitting=lambda schedd: _SCHEDD_FITTING.get(ScheddState(schedd.state), ("check", "enable")), themes=_SCHEDD_THEMES,
    ),
    _state_action("enable", "Enable", ScheddState.ENABLED, "New DAGs may go to it. A drain is taken back.", "disable"),
    Action(
        "drain", "Drain", _DRAIN, schedd_drain, None,
        (
            Field("move", Kind.FLAG, "DAGs that run there are stopped one after the other, and go on elsewhere"),
            Field("at_once", Kind.WHOLE, "how many are moved at a time; without it one", least=1, most=100),
        ),
        repeated=_drains_so, path="drain", inverse="enable",
    ),
    _state_action("disable", "Disable", ScheddState.DISABLED, "No new DAG goes to it; those at it are still watched.", "enable"),
    Action(
        "change-schedd", "Change",
        "Other limits of a schedd, for DAGs that are placed from now on; DAGs that are there keep what they have.",
        pools.schedd_change, None, _LIMITS,
        initial=lambda schedd: {one.name: getattr(schedd, one.name) for one in _LIMITS}, path="change", single=True,
        inverse="change-schedd",
    ),
    _remove_action(lambda schedd, **who: pools.row_remove(row=schedd, **who)),
)  # fmt: skip
