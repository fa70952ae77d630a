"""Endpoints of sites, pools and schedds; the operations are made from ``sites_app.actions``."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from sites_app.actions import POOL_ADD
from sites_app.api.filters import PoolFilters, ScheddFilters, SiteFilters
from sites_app.api.serializers import (
    PoolListSerializer,
    PoolSerializer,
    ScheddLineSerializer,
    ScheddRowSerializer,
    SiteListSerializer,
    SiteSerializer,
    SystemicAlertSerializer,
)
from sites_app.bans import bans_active
from sites_app.models import Pool, Schedd, Site, SiteStatus, SystemicAlert
from sites_app.selectors import rses_of, sites_shown
from sites_app.services import site_change_status, site_note
from wms2.actions import arguments
from wms2.api.actions import LISTED, Resource, actor_of, input_serializer
from wms2.api.preconditions import etag_of
from wms2.api.serializers import ReasonSerializer, WordField
from wms2.api.views import ApiView, RowsViewSet
from wms2.runtime import clock


def site_etag(site: Any) -> str:
    """What operators decide on and operations change, of a row of ``sites_shown``. Slots move by themselves and are no part
    of it.
    """
    bans = [(ban.pk, ban.expires_at, ban.reason) for ban in site.active_bans]
    return etag_of(site.pk, site.status, site.status_reason, site.status_actor, site.drain_until, site.config_data, bans)


SITES = Resource(Site, SiteSerializer, sites_shown, etag=site_etag)
LISTED["sites"] = SITES, SiteFilters


class SiteViewSet(RowsViewSet):
    """Sites of CRIC, with what WMS2 knows of them."""

    queryset = Site.objects.all()
    serializer_class = SiteSerializer
    list_serializer_class = SiteListSerializer
    filterset_class = SiteFilters
    ordering = ("name",)
    ordering_fields = ("name", "status", "total_slots", "running_slots", "updated_at")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Their storage and bans."""
        names = [line["name"] for line in lines]
        bans = Counter(bans_active().filter(site__in=names).values_list("site_id", flat=True))
        rses = rses_of(names)
        for line in lines:
            line["rses"], line["bans"] = rses[line["name"]], bans[line["name"]]


class SiteChangeSerializer(ReasonSerializer):
    """PATCH: the status, and what operators note about a site."""

    status = WordField(choices=SiteStatus.choices, required=False)
    drain_until = serializers.DateTimeField(required=False, help_text="only with status draining; the site is enabled again then")
    config_data = serializers.DictField(required=False, help_text="operators' notes about the site, in place of the old ones")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Something must be asked for."""
        if not attrs.keys() & {"status", "config_data"}:
            raise serializers.ValidationError({"status": "give status or config_data"})
        if "drain_until" in attrs and attrs.get("status") != SiteStatus.DRAINING:
            raise serializers.ValidationError({"drain_until": "only draining has an end"})
        if "drain_until" in attrs and attrs["drain_until"] <= clock.now():
            raise serializers.ValidationError({"drain_until": "a drain ends in the future"})
        return attrs


class SiteView(ApiView):
    """One site."""

    serializer_class = SiteSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"get", "patch"})

    def get(self, request: Request, pk: str) -> Response:
        """With its storage, its bans in force, and its slots as the collector reported them."""
        site = get_object_or_404(sites_shown(), pk=pk)
        return self.versioned_answer(request, self.get_serializer(site).data, site_etag(site))

    @extend_schema(request=SiteChangeSerializer, responses={200: SiteSerializer})
    def patch(self, request: Request, pk: str) -> Response:
        """Change its status, or operators' notes about it. What the site is, only CRIC changes; bans have an operation of
        their own.
        """
        serializer = SiteChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        SITES.act(request, pk, partial(_change, asked=serializer.validated_data, actor=actor_of(request)))
        return SITES.shown(request, sites_shown().get(pk=pk), status.HTTP_200_OK)


def _change(site: Site, *, asked: dict[str, Any], actor: str) -> None:
    by = {"actor": actor, "reason": asked["reason"]}
    until = asked.get("drain_until")
    if "status" in asked and (site.status, site.drain_until) != (asked["status"], until):
        site_change_status(site=site, status=SiteStatus(asked["status"]), drain_until=until, **by)
    if "config_data" in asked:
        site_note(site=site, notes=asked["config_data"], **by)


class PoolViewSet(RowsViewSet):
    """Pools that WMS2 submits to."""

    queryset = Pool.objects.all()
    serializer_class = PoolSerializer
    list_serializer_class = PoolListSerializer
    filterset_class = PoolFilters
    ordering = ("name",)
    ordering_fields = ("name", "state")

    @extend_schema(request=input_serializer(POOL_ADD), responses={201: PoolSerializer})
    def create(self, request: Request) -> Response:
        """Add a pool: its collector is asked from now on, and its schedds are found, disabled."""
        serializer = input_serializer(POOL_ADD)(data=request.data)
        serializer.is_valid(raise_exception=True)
        given = arguments(POOL_ADD, serializer.validated_data)
        pool = POOL_ADD.service(pool=None, actor=actor_of(request), **given)
        return Response(PoolSerializer(pool).data, status=status.HTTP_201_CREATED)


class ScheddViewSet(RowsViewSet):
    """Schedds of all pools, those that were only discovered too."""

    queryset = Schedd.objects.all()
    serializer_class = ScheddRowSerializer
    list_serializer_class = ScheddLineSerializer
    filterset_class = ScheddFilters
    ordering = ("pool_id", "name")
    ordering_fields = ("name", "state")


class SystemicAlertViewSet(RowsViewSet):
    """When schedds or sites turned bad together."""

    queryset = SystemicAlert.objects.all()
    serializer_class = SystemicAlertSerializer
    ordering = ("-id",)
    ordering_fields = ("id",)


POOLS = Resource(Pool, PoolSerializer, Pool.objects.all)
#: What was removed, as it was.
REMOVED_POOL = (PoolListSerializer, lambda pool, made, given: pool)
REMOVED_SCHEDD = (ScheddLineSerializer, lambda schedd, made, given: schedd)
