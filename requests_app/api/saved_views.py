"""REST of the views of the list of requests: one's own and shared ones; made and removed by their owners."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.reverse import reverse

from requests_app.api.filters import RequestFilters
from requests_app.models import SavedView
from requests_app.selectors.saved_views import views_seen
from requests_app.services.saved_views import MAX_QUERY, view_remove, view_save
from wms2.api.account import SessionOrWholeToken
from wms2.api.answers import rows
from wms2.api.serializers import StrictSerializer, TextField
from wms2.api.views import RowsViewSet

SavedViewSerializer = rows(
    "SavedView", SavedView, "A view of the list of requests.",
    "id", "name", "owner=owner.username", "query", "shared", "created_at",
)  # fmt: skip


class SavedViewInputSerializer(StrictSerializer):
    """A view to be kept; the owner's one of the same name is replaced."""

    name = TextField(max_length=100)
    query = TextField(max_length=MAX_QUERY, help_text="filters and ordering, as behind the question mark of the list's address")
    shared = serializers.BooleanField(default=False, help_text="all who sign in find it")


class SignedInKeeps(SessionOrWholeToken):
    """All who are signed in read; to keep something takes a session, or a token that may do all that its owner may."""

    def has_permission(self, request: HttpRequest, view: Any) -> bool:
        """Whether it is so."""
        return bool(request.user.is_authenticated) and (request.method in SAFE_METHODS or super().has_permission(request, view))


class SavedViewViewSet(RowsViewSet):
    """Views of the list of requests: one's own and those that are shared."""

    queryset = SavedView.objects.all()
    serializer_class = SavedViewSerializer
    permission_classes = (SignedInKeeps,)
    ordering = ("name",)
    ordering_fields = ("name", "created_at")

    def get_queryset(self) -> Any:
        """What this user may see."""
        return views_seen(self.request.user)

    @extend_schema(request=SavedViewInputSerializer, responses={201: SavedViewSerializer})
    def create(self, request: HttpRequest) -> Response:
        """Keep a view."""
        data = SavedViewInputSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        view = view_save(owner=request.user, filters=RequestFilters, **data.validated_data)
        location = reverse("saved-view-detail", [view.pk], request=request)
        return Response(SavedViewSerializer(view).data, 201, headers={"Location": location})

    def destroy(self, request: HttpRequest, pk: int) -> Response:
        """Remove a view of one's own."""
        view_remove(view=get_object_or_404(SavedView, pk=pk, owner=request.user))
        return Response(status=204)
