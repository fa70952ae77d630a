"""Health for supervisors and load balancers, the only thing that anonymous callers may read. Reasons carry no secrets.

``/livez``: this process serves. ``/readyz``: it can do its work: database reachable and ours, broker reachable, a leader drives
the life cycle. Each part is asked with a short time limit; details of a failure go to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import structlog
from django.db import DatabaseError, connection
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from requests_app.installation import MAX_CLOCK_SKEW_SECONDS, TablesOlder, installation_verify, tables_verify
from requests_app.selectors.lifecycle import RUCIO_ACCOUNT, lifecycle_state, rucio_account_problems
from wms2.api.views import METHODS
from wms2.celery import broker_answers
from wms2.errors import ConfigurationError
from wms2.identities.issuer_keys import unread_issuers
from wms2.runtime import clock
from wms2.runtime.in_force import limits_refused
from wms2.web.login_throttle import proxy_not_counted
from wms2.web.shedding import Call
from wms2.work.workers import pool_problems

log = structlog.get_logger(__name__)


class LiveSerializer(serializers.Serializer[Any]):
    """This process serves."""

    status = serializers.ChoiceField(choices=["ok"])


class ReadySerializer(serializers.Serializer[Any]):
    """``reasons`` says what is missing, by part; ``warnings`` which credentials end soon or have ended, what our account in
    Rucio may not do, which worker pools are stopped or have no workers, which changed limits this release refuses, and of which
    token issuers this process could not read the keys."""

    status = serializers.ChoiceField(choices=["ok", "unavailable"])
    reasons = serializers.DictField(child=serializers.CharField())
    warnings = serializers.DictField(child=serializers.CharField())


class PublicView(APIView):
    """No sign-in, no permission, no database needed to get here."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    http_method_names = METHODS
    calls: ClassVar[Mapping[str, Call]] = {"get": Call.HEALTH}


class LiveView(PublicView):
    """Whether this process serves."""

    @extend_schema(responses={200: LiveSerializer})
    def get(self, request: Request) -> Response:
        """Always, as long as it does."""
        return Response({"status": "ok"})


class ReadyView(PublicView):
    """Whether this installation can do its work."""

    @extend_schema(responses={200: ReadySerializer, 503: ReadySerializer})
    def get(self, request: Request) -> Response:
        """200, or 503 with reasons."""
        reasons = not_ready()
        code = 503 if reasons else 200
        warnings = {} if reasons.keys() & {"database", "instance"} else health_warnings()
        return Response({"status": "unavailable" if reasons else "ok", "reasons": reasons, "warnings": warnings}, status=code)


def not_ready() -> dict[str, str]:
    """Part -> why it is not ready; empty when all is well."""
    found = {"database": why} if (why := _why("database", _database, "does not answer")) else {}
    if not found:
        found["instance"] = _why("instance", _instance, "the database has no tables of this release; run: manage.py migrate")
        found["lifecycle"] = _why("lifecycle", _lifecycle, "cannot be read")
        found["clock"] = _why("clock", _clock, "cannot be compared")
    found["broker"] = "" if broker_answers() else "does not answer"
    return {part: why for part, why in found.items() if why}


def health_warnings() -> dict[str, str]:
    """Credentials that end, what Rucio refuses us, pools whose tasks wait, limits out of bounds, a proxy that is not counted,
    issuers whose keys this process could not read. No
    reason to take the pages away that say what to do about it, nor to restart what drives the life cycle."""
    found = {each.name: each.ends_at for each in lifecycle_state().credentials_ending}
    ends = {name: f"ends at {at:%Y-%m-%d %H:%M:%S} UTC" if at else "cannot be used" for name, at in found.items()}
    ends |= {f"worker pool {each.queue}": each.words for each in pool_problems()}
    ends |= {f"token issuer {issuer}": why for issuer, why in unread_issuers().items()}
    ends |= {"proxies_in_front": why} if (why := proxy_not_counted()) else {}
    ends |= {f"limit {name}": f"{why}; its default holds until it is changed" for name, why in limits_refused().items()}
    return ends | ({RUCIO_ACCOUNT: "; ".join(problems)} if (problems := rucio_account_problems()) else {})


def _why(part: str, ask: Callable[[], str], silent: str) -> str:
    try:
        return ask()
    except (DatabaseError, OSError) as error:
        log.warning("not ready", part=part, error=str(error))
        return silent


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""


def _instance() -> str:
    try:
        installation_verify()
        tables_verify()
    except TablesOlder as error:
        return str(error)
    except ConfigurationError as error:
        log.warning("not ready", part="instance", error=str(error))
        return "the database belongs to another instance or environment, or is not claimed yet"
    return ""


def _lifecycle() -> str:
    lifecycle = lifecycle_state()
    if lifecycle.cycle_age_seconds is None:
        return "no cycle has run yet"
    return f"the last cycle ended {lifecycle.cycle_age_seconds:.0f} s ago" if lifecycle.stale else ""


def _clock() -> str:
    skew = clock.skew_seconds()
    return f"this host's clock is {skew:+.1f} s off the database's" if abs(skew) > MAX_CLOCK_SKEW_SECONDS else ""
