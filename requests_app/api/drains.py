"""The drain of a schedd: asked for, and how far it is."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.api.schedds import POOL, SCHEDDS, schedd_asked
from requests_app.selectors.drains import drain_progress
from sites_app.models import Schedd
from wms2.api.verbs import VerbView, verb_method


class DrainSerializer(serializers.Serializer):
    """How far a drain is; of a schedd that does not drain, what one would concern."""

    name = serializers.CharField(source="schedd.name")
    pool = serializers.CharField(source="schedd.pool_id")
    state = serializers.CharField(source="schedd.state")
    drain_since = serializers.DateTimeField(source="schedd.drain_since", allow_null=True)
    drain_actor = serializers.CharField(source="schedd.drain_actor", allow_blank=True)
    drain_reason = serializers.CharField(source="schedd.drain_reason", allow_blank=True)
    at_once = serializers.IntegerField(help_text="DAGs that are moved at a time; 0: they run to their end")
    left = serializers.IntegerField(help_text="live DAGs there")
    moving = serializers.IntegerField(help_text="requests that are stopped to be moved and run nowhere else yet")
    moved = serializers.IntegerField(help_text="DAGs that went on elsewhere since it began")
    finished = serializers.IntegerField(help_text="DAGs that ended there since by themselves")
    queued = serializers.IntegerField(help_text="requests that wait to go on there")
    held = serializers.IntegerField(help_text="held requests whose DAG lies there; move them, or release them elsewhere")
    expected_end = serializers.DateTimeField(allow_null=True, help_text="at the pace so far; null while nobody can tell")
    obstacle = serializers.CharField(allow_blank=True, help_text="why nothing can be moved now")
    drained = serializers.BooleanField(help_text="nothing is left there")


class ScheddDrainView(VerbView):
    """Drain a schedd, and see how far that is."""

    serializer_class = DrainSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({POOL.name})
    post = verb_method(replace(SCHEDDS, serializer=DrainSerializer, picture=drain_progress), "drain")

    @extend_schema(parameters=[POOL])
    def get(self, request: HttpRequest, name: str) -> Response:
        """As the rows have it now; no schedd is asked."""
        return Response(DrainSerializer(drain_progress(schedd_asked(request, Schedd.objects.all(), name))).data)
