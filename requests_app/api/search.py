"""``GET /search``: what a name, an id or a path is of."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from requests_app.selectors.search import LONGEST, Found, Group, Hit, search
from wms2.api.answers import answer
from wms2.api.problems import bad_field
from wms2.api.views import ApiView

HitSerializer = answer(
    "Hit", Hit, "One thing that was found.", "name", "about", "url", "whole",
    about="how it is connected with what was asked for, if not by its name", url="its page, at this host",
    whole="it is what was asked for, not only the beginning of it",
)  # fmt: skip
HitGroupSerializer = answer("HitGroup", Group, "What was found of one kind.", "kind", "hits", "more", more="others are not shown")
FoundSerializer = answer(
    "Found", Found, "What was found.", "asked", "groups", "looked_for", looked_for="among what, by the form of the text"
)
_Q = OpenApiParameter(
    "q", {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^[^\\x00]*$"}, required=True,
    description="a request, prep id, campaign, dataset, block, LFN, cluster or DAG id, site, schedd; or its beginning",
)  # fmt: skip


class SearchView(ApiView):
    """The search box of the pages."""

    serializer_class = FoundSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"q"})

    @extend_schema(parameters=[_Q], description="What a name, an id or a path is of, by kind; a few of each.")
    def get(self, request: Request) -> Response:
        """One look-up for each kind that it may be of."""
        asked = request.query_params.get("q", "")
        if not asked.strip():
            raise bad_field("q", "what to look for")
        try:
            return Response(FoundSerializer(search(asked)).data)
        except ValueError as error:
            raise bad_field("q", str(error)) from error
