"""One site, and verbs on it: change, drain, enable, disable, ban and lift bans (spec 7.1; error-handling 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.api.etags import site_etag
from requests_app.api.verbs import actor_of
from requests_app.models import Workflow
from requests_app.services.sites import site_ban_by_operator, site_change_status, site_note, site_unban_by_operator
from sites_app.api.serializers import SiteSerializer
from sites_app.models import Site, SiteStatus
from sites_app.selectors import sites_shown
from wms2.api.preconditions import if_match, in_one_transaction
from wms2.api.problems import bad_field
from wms2.api.serializers import MAX_REASON, NameField, ReasonSerializer
from wms2.api.views import ApiView, query_and_body
from wms2.errors import InvalidTransition

_REASON = {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"}


class DrainSerializer(ReasonSerializer):
    """Why, and until when."""

    until = serializers.DateTimeField(required=False, help_text="the site is enabled again then; without it, by a person")


class BanSerializer(ReasonSerializer):
    """Whom the site is banned for, and how long."""

    request_name = NameField(required=False, help_text="only this request; without it, every request")
    expires_at = serializers.DateTimeField(required=False, help_text="default: site_ban_duration_days from now")
    insist = serializers.BooleanField(default=False, help_text="also when more than half of the sites would be banned then")


class UnbanSerializer(ReasonSerializer):
    """Which bans."""

    request_name = NameField(required=False, help_text="only the ban of this request; without it, every ban of the site")


class SiteChangeSerializer(ReasonSerializer):
    """PATCH: the status, and what operators note about a site."""

    status = serializers.ChoiceField(choices=SiteStatus.choices, required=False)
    drain_until = serializers.DateTimeField(required=False, help_text="only with status draining; the site is enabled again then")
    config_data = serializers.DictField(required=False, help_text="operators' notes about the site, in place of the old ones")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Something must be asked for."""
        if not attrs.keys() & {"status", "config_data"}:
            raise serializers.ValidationError({"status": "give status or config_data"})
        if "drain_until" in attrs and attrs.get("status") != SiteStatus.DRAINING:
            raise serializers.ValidationError({"drain_until": "only draining has an end"})
        return attrs


class SiteVerbView(ApiView):
    """A verb on one site: 202 and the site out. Repeatable."""

    serializer_class = SiteSerializer
    input_class: ClassVar[type[ReasonSerializer]] = ReasonSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"get", "patch", "post", "delete"})

    def checked(self, data: Any) -> dict[str, Any]:
        """The body, judged."""
        serializer = self.input_class(data=data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def answer(self, pk: str, code: int = status.HTTP_202_ACCEPTED) -> Response:
        """The site as it is now."""
        site = sites_shown().get(pk=pk)
        return Response(self.get_serializer(site).data, status=code, headers={"ETag": site_etag(site)})

    def on_site(self, request: HttpRequest, pk: str, verb: Callable[[Site], object]) -> None:
        """Run ``verb`` on the site, if need be only on the version that the client demands."""
        demanded = if_match(request)
        if demanded is None:
            verb(get_object_or_404(Site, pk=pk))
            return

        def on_version() -> None:
            site = get_object_or_404(sites_shown().select_for_update(no_key=True), pk=pk)
            demanded.require(site_etag(site))
            verb(site)

        in_one_transaction(on_version)


class _StatusView(SiteVerbView):
    to: ClassVar[SiteStatus]

    def change(self, request: HttpRequest, pk: str) -> Response:
        """Done twice it is done once."""
        data = self.checked(request.data)
        become = partial(_become, to=self.to, until=data.get("until"), actor=actor_of(request), reason=data["reason"])
        self.on_site(request, pk, become)
        return self.answer(pk)


class SiteView(SiteVerbView):
    """One site."""

    input_class = SiteChangeSerializer

    @extend_schema(responses={200: SiteSerializer})
    def get(self, request: HttpRequest, pk: str) -> Response:
        """With its storage, its bans in force, and its slots as the collector told them."""
        site = get_object_or_404(sites_shown(), pk=pk)
        return self.versioned_answer(request, self.get_serializer(site).data, site_etag(site))

    @extend_schema(request=SiteChangeSerializer, responses={200: SiteSerializer})
    def patch(self, request: HttpRequest, pk: str) -> Response:
        """Change its status, or operators' notes about it. What the site is, only CRIC changes; bans have a verb of their own."""
        self.on_site(request, pk, partial(_change, asked=self.checked(request.data), actor=actor_of(request)))
        return self.answer(pk, status.HTTP_200_OK)


class SiteEnableView(_StatusView):
    """Let new work go to the site again."""

    to = SiteStatus.ENABLED

    @extend_schema(request=ReasonSerializer, responses={202: SiteSerializer})
    def post(self, request: HttpRequest, pk: str) -> Response:
        """Ends a drain and a closure; bans have a verb of their own."""
        return self.change(request, pk)


class SiteDisableView(_StatusView):
    """Close the site for new work, until a person enables it."""

    to = SiteStatus.DISABLED

    @extend_schema(request=ReasonSerializer, responses={202: SiteSerializer})
    def post(self, request: HttpRequest, pk: str) -> Response:
        """CRIC's sync does not undo it."""
        return self.change(request, pk)


class SiteDrainView(_StatusView):
    """No new work for the site; what runs there goes on."""

    to = SiteStatus.DRAINING
    input_class = DrainSerializer

    @extend_schema(request=DrainSerializer, responses={202: SiteSerializer})
    def post(self, request: HttpRequest, pk: str) -> Response:
        """For good, or until a time."""
        return self.change(request, pk)


class SiteBanView(SiteVerbView):
    """Bans: for one request or for all, always with an end."""

    input_class = BanSerializer
    query_params: ClassVar[frozenset[str]] = frozenset()

    def known_query_params(self) -> frozenset[str]:
        """DELETE takes its reason in the query string too."""
        return frozenset({"reason", "request_name"}) if self.request.method == "DELETE" else frozenset()

    @extend_schema(request=BanSerializer, responses={202: SiteSerializer})
    def post(self, request: HttpRequest, pk: str) -> Response:
        """No new submission sends work there; running DAGs go on. The same ban again prolongs it."""
        data = self.checked(request.data)
        ban = partial(
            site_ban_by_operator,
            actor=actor_of(request),
            reason=data["reason"],
            workflow=_workflow(data.get("request_name")),
            expires_at=data.get("expires_at"),
            insist=data["insist"],
        )
        try:
            self.on_site(request, pk, lambda site: ban(site=site))
        except InvalidTransition as error:
            if "expires_at" in data and "is over already" in str(error):
                raise bad_field("expires_at", str(error)) from error
            raise
        return self.answer(pk)

    @extend_schema(
        parameters=[
            OpenApiParameter("reason", _REASON, required=True, description="why; may also stand in a JSON body"),
            OpenApiParameter("request_name", str, description="only the ban of this request"),
        ],
        request=None,
        responses={202: SiteSerializer},
    )
    def delete(self, request: HttpRequest, pk: str) -> Response:
        """Lift every ban of the site in force, or that of one request. None in force is no error."""
        serializer = UnbanSerializer(data=query_and_body(request))
        serializer.is_valid(raise_exception=True)
        data = serializer.validated_data
        workflow = _workflow(data.get("request_name"))
        unban = partial(
            site_unban_by_operator,
            actor=actor_of(request),
            reason=data["reason"],
            workflow_id=workflow.pk if workflow else None,
        )
        self.on_site(request, pk, lambda site: unban(site=site))
        return self.answer(pk)


def _change(site: Site, *, asked: dict[str, Any], actor: str) -> None:
    if "status" in asked:
        _become(site, to=SiteStatus(asked["status"]), until=asked.get("drain_until"), actor=actor, reason=asked["reason"])
    if "config_data" in asked:
        site_note(site=site, notes=asked["config_data"], actor=actor, reason=asked["reason"])


def _become(site: Site, *, to: SiteStatus, until: datetime | None, actor: str, reason: str) -> None:
    if (site.status, site.drain_until) != (to, until):
        site_change_status(site=site, status=to, actor=actor, reason=reason, drain_until=until)


def _workflow(request_name: str | None) -> Workflow | None:
    if request_name is None:
        return None
    workflow = Workflow.objects.filter(request_id=request_name).first()
    if workflow is None:
        raise bad_field("request_name", "no such request, or it has no workflow yet")
    return workflow
