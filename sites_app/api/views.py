"""Site endpoints."""

from __future__ import annotations

from typing import Any

from sites_app.api.filters import SiteFilters
from sites_app.api.serializers import SiteListSerializer, SiteSerializer
from sites_app.selectors import sites_shown
from wms2.api.views import RowsViewSet


class SiteViewSet(RowsViewSet):
    """Sites of CRIC, with what WMS2 knows of them."""

    serializer_class = SiteSerializer
    list_serializer_class = SiteListSerializer
    filterset_class = SiteFilters
    ordering = ("name",)
    ordering_fields = ("name", "status", "total_slots", "running_slots", "updated_at")

    def get_queryset(self) -> Any:
        """Rows."""
        return sites_shown()
