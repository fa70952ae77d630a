"""Whether a client may see what stands beside WMS2, for that to ask: Flower, and ``auth_request`` of a proxy."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from wms2.actions import Role
from wms2.api.views import METHODS
from wms2.identities.grants import is_operator


class OperatorsSee(BasePermission):
    """Operators and administrators, whatever the method."""

    message = f"only users with the role {Role.OPERATOR.value} or {Role.ADMIN.value} may see Flower"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """By role."""
        return bool(request.user.is_authenticated) and is_operator(request.user)


class FlowerView(APIView):
    """204 for those who may see the Celery workers in Flower, 401 or 403 for others."""

    permission_classes = (OperatorsSee,)
    http_method_names = METHODS

    @extend_schema(responses={204: None})
    def get(self, request: Request) -> Response:
        """Nothing but the status."""
        return Response(status=204)
