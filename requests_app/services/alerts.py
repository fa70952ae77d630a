"""What people do about alerts: take them, give them back, silence them; watch a request. By default all of one code and cause."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from requests_app.models import Alert, Request, RequestWatch
from wms2.actions import must_apply
from wms2.audit import audited
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime import clock
from wms2.web.formatting import exact

#: No silence is longer.
LONGEST_SILENCE = timedelta(days=30)


def alert_acknowledge(
    *, alert: Alert, actor: str, reason: str, owner: str = "", take_over: bool = False, alone: bool = False
) -> None:
    """``actor``, or ``owner``, has it from now on, with the open ones of the same code and cause unless ``alone``: no reminder is
    sent, and those that join them are not sent as new. ``take_over``: also what another has; what the actor has is handed over
    without it.

    Raises:
        InvalidTransition: it is over, or another has it.
        FieldRefused: there is no such user.
    """
    becomes = owner or actor
    if owner and not get_user_model().objects.filter(username=owner, is_active=True).exists():
        raise FieldRefused("owner", "there is no active user of this name")
    with audited(actor=actor, action="alert_acknowledge", target=str(alert), target_type="alert", reason=reason, owner=becomes):
        rows = _meant(alert, alone)
        held = [row for row in rows.select_for_update(no_key=True).order_by("pk") if row.owner not in ("", becomes, actor)]
        if held and not take_over:
            raise InvalidTransition(f"{held[0]}: {held[0].owner} has it{_since(held[0])}. Set take over to replace the owner.")
        rows.update(owner=becomes, acknowledged_by=actor, acknowledged_at=clock.now())


def alert_give_back(*, alert: Alert, actor: str, reason: str, alone: bool = False) -> None:
    """It is free again, with those of the same code and cause unless ``alone``. Raises InvalidTransition: it is over, or free."""
    with audited(actor=actor, action="alert_give_back", target=str(alert), target_type="alert", reason=reason, owner=alert.owner):
        must_apply(alert, give_back_refused(alert))
        _meant(alert, alone).update(owner="", acknowledged_by="", acknowledged_at=None)


def alert_silence(*, alert: Alert, actor: str, reason: str, until: datetime, alone: bool = False) -> None:
    """Nothing is sent about it until then, nor about those of the same code and cause unless ``alone``; pages still show it.

    Raises:
        InvalidTransition: it is over.
        FieldRefused: the moment is past, or too far away.
    """
    now = clock.now()
    if not now < until <= now + LONGEST_SILENCE:
        raise FieldRefused("until", f"a silence ends in the future, at most {LONGEST_SILENCE.days} days from now")
    with audited(
        actor=actor, action="alert_silence", target=str(alert), target_type="alert", reason=reason, until=until.isoformat()
    ):
        _meant(alert, alone).update(silenced_until=until, silenced_by=actor, silence_reason=reason)


def alert_unsilence(*, alert: Alert, actor: str, reason: str, alone: bool = False) -> None:
    """What is sent about it is sent again. Raises InvalidTransition: it is over, or not silenced."""
    with audited(actor=actor, action="alert_unsilence", target=str(alert), target_type="alert", reason=reason):
        must_apply(alert, unsilence_refused(alert))
        _meant(alert, alone).update(silenced_until=None, silenced_by="", silence_reason="")


def _since(alert: Alert) -> str:
    return f" since {exact(alert.acknowledged_at)}" if alert.acknowledged_at else ""


def over_refused(alert: Alert) -> str:
    """Why nothing can be done about it; empty while it goes on."""
    return "It is over." if alert.ended_at is not None else ""


def give_back_refused(alert: Alert) -> str:
    """Why it cannot be given back."""
    return over_refused(alert) or ("" if alert.owner else "It is free.")


def unsilence_refused(alert: Alert) -> str:
    """Why its silence cannot be ended."""
    silent = alert.silenced_until is not None and alert.silenced_until > clock.now()
    return over_refused(alert) or ("" if silent else "It is not silenced.")


def _meant(alert: Alert, alone: bool) -> QuerySet[Alert]:
    """The open rows that an operation is about, in the caller's transaction. Raises InvalidTransition: it is over by now."""
    if not Alert.objects.filter(pk=alert.pk, ended_at=None).exists():
        raise InvalidTransition(f"{alert}: It is over.")
    if alone:
        return Alert.objects.filter(pk=alert.pk)
    # of its site: admins of sites act on their own alone
    return Alert.objects.filter(code=alert.code, cause=alert.cause, site=alert.site, ended_at=None)


def request_watch(*, request: Request, actor: str, reason: str) -> None:
    """``actor`` gets mails about the request's alerts from now on. Raises InvalidTransition: they have no address, or no user."""
    with audited(actor=actor, action="request_watch", target=request.request_name, target_type="request", reason=reason):
        user = get_user_model().objects.filter(username=actor).first()
        if user is None or not user.email:
            raise InvalidTransition(f"{request}: your account has no mail address")
        RequestWatch.objects.get_or_create(request=request, user=user, defaults={"created_at": clock.now()})


def request_unwatch(*, request: Request, actor: str, reason: str) -> None:
    """No mails about it any more to ``actor``."""
    with audited(actor=actor, action="request_unwatch", target=request.request_name, target_type="request", reason=reason):
        RequestWatch.objects.filter(request=request, user__username=actor).delete()


def acknowledged_so(alert: Alert, user: str, given: object) -> bool:
    """Whether ``user`` has it already."""
    return alert.ended_at is None and alert.owner == user and not (isinstance(given, dict) and given.get("owner"))
