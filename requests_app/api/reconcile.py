"""A whole cycle of the life cycle at once."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.reverse import reverse

from requests_app.models import Reconciliation
from requests_app.services.reconciling import reconcile
from wms2.api.serializers import ReasonSerializer
from wms2.api.verbs import actor_of
from wms2.api.views import ApiView


class ReconciliationSerializer(serializers.ModelSerializer):
    """What was asked, and what came of it."""

    state = serializers.CharField(help_text="waiting, running or ended")

    class Meta:
        model = Reconciliation
        fields: tuple[str, ...] = ("id", "state", "asked_at", "asked_by", "reason", "asked", "begun_at", "ended_at", "found")


class ReconcileView(ApiView):
    """Whole cycles that are asked for."""

    serializer_class = ReconciliationSerializer

    @extend_schema(request=ReasonSerializer, responses={202: ReconciliationSerializer})
    def post(self, request: HttpRequest) -> Response:
        """Have the leader observe all schedds, look for orphans, admit, and evaluate every request ; asked twice, it is one."""
        data = ReasonSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        row = reconcile(actor=actor_of(request), **data.validated_data)
        location = reverse("reconciliation", [row.pk], request=request)
        return Response(self.get_serializer(row).data, status.HTTP_202_ACCEPTED, headers={"Location": location})


class ReconciliationView(ApiView):
    """One of them."""

    serializer_class = ReconciliationSerializer

    def get(self, request: HttpRequest, pk: int) -> Response:
        """What it found and did, once it has ended: schedds, orphans, requests, events by kind."""
        return Response(self.get_serializer(get_object_or_404(Reconciliation, pk=pk)).data)
