"""Verbs on a DAG (spec 7.1): a reason in, 202 and the DAG out."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.api.etag import dag_etag
from dags_app.api.serializers import DagSerializer
from dags_app.selectors import dags_shown
from requests_app.api.verb_views import reason_of
from requests_app.api.verbs import actor_of
from requests_app.services import dags
from wms2.api.preconditions import if_match
from wms2.api.serializers import ReasonSerializer
from wms2.api.views import ApiView


class DagVerbView(ApiView):
    """What the verbs share."""

    serializer_class = DagSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"post"})
    verb: ClassVar[Callable[..., object]]

    @extend_schema(request=ReasonSerializer, responses={202: DagSerializer})
    def post(self, request: HttpRequest, pk: uuid.UUID) -> Response:
        """Done at the schedd, or recorded for the life cycle. Repeatable."""
        reason, demanded = reason_of(request.data), if_match(request)
        dag = get_object_or_404(dags_shown(), pk=pk)
        if demanded is not None:  # with no lock: a schedd is asked next, and each of these verbs may be done twice
            demanded.require(dag_etag(dag))
        self.verb(dag=dag, actor=actor_of(request), reason=reason)
        shown = dags_shown().prefetch_related("history").get(pk=pk)
        etag = {"ETag": dag_etag(shown)}
        return Response(self.get_serializer(shown).data, status=status.HTTP_202_ACCEPTED, headers=etag)


class DagHoldView(DagVerbView):
    """Pause a DAG: its DAGMan jobs are held, jobs that run go on."""

    verb = staticmethod(dags.dag_hold)


class DagReleaseView(DagVerbView):
    """Let a paused DAG go on."""

    verb = staticmethod(dags.dag_release)


class DagRemoveView(DagVerbView):
    """Remove the DAG with everything under it; its request is held."""

    verb = staticmethod(dags.dag_remove)


class DagRescueView(DagVerbView):
    """Submit the rescue of a held request's last DAG."""

    verb = staticmethod(dags.dag_rescue)
