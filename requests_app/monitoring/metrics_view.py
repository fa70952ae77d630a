"""``GET /api/v1/metrics``: Prometheus text of all processes of this node, and the gauges over rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from requests_app.monitoring.metrics import RowsCollector
from wms2.api.views import METHODS
from wms2.metrics_files import AllProcesses, directories
from wms2.shedding import Call


def registry() -> CollectorRegistry:
    """What one scrape shows.

    Where processes keep their counters in files (``wms2.metrics_files``), those of all of them, dead ones included; otherwise
    those of the process that answers. The gauges over rows are the same everywhere.
    """
    found = CollectorRegistry()
    found.register(AllProcesses() if directories() else REGISTRY)
    found.register(RowsCollector())
    return found


class AnyAccept(BaseContentNegotiation):
    """The encoder is chosen by prometheus_client; problems are JSON."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The only one."""
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None) -> Any:
        """The only one."""
        only = next(iter(renderers))
        return only, only.media_type


class MetricsView(APIView):
    """For Prometheus; a token like everywhere (``authorization: {type: Token, credentials: ...}``)."""

    content_negotiation_class = AnyAccept
    calls: ClassVar[Mapping[str, Call]] = {"get": Call.HEALTH}
    http_method_names = METHODS

    @extend_schema(responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR, description="Prometheus text format")})
    def get(self, request: Request) -> HttpResponse:
        """All metrics."""
        encode, content_type = choose_encoder(request.META.get("HTTP_ACCEPT", ""))
        return HttpResponse(encode(registry()), content_type=content_type)
