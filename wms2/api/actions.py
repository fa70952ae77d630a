"""REST addresses of operations, made from their declarations: a reason and the fields in, 202 and the row out. Repeatable.

An operation compares what it was decided on with the row. Here no status was decided on: "abort" means whatever it is
by now, so a stale row is read again a few times before the client gets an error. A client that has decided on a version
sends it in ``If-Match``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from django.db.models import CharField, Model, UUIDField
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from wms2.actions import Action, Field, Kind, ResourceType, arguments, perform, resource_type_of, resource_types, undone
from wms2.api.permissions import performed_action
from wms2.api.preconditions import if_match, in_one_transaction, require_version
from wms2.api.serializers import (
    MAX_REASON,
    LfnField,
    NameField,
    ReasonSerializer,
    ShareField,
    SiteField,
    TextField,
    WordField,
)
from wms2.api.views import ApiView, RowsViewSet, query_and_body
from wms2.errors import StaleState
from wms2.identities.grants import require
from wms2.web.shedding import Call

TRIES = 3
#: Addresses of lists, below ``/api/v1/``, whose rows have operations -> how the rows are found, and the list's filters.
LISTED: dict[str, tuple[Resource, Any]] = {}
_REASON = OpenApiParameter(
    "reason",
    {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"},
    required=True,
    description="why; may also stand in a JSON body",
)
#: A serializer, and its object: of the row, what the service returned and what it was given.
Answer = tuple[Any, Callable[[Any, Any, Mapping[str, Any]], Any]]


@dataclass(frozen=True, slots=True)
class Resource:
    """How the rows of a resource are found, shown and compared.

    Args:
        rows: to act on and to show.
        key: lookup of the address's argument, which has the same name.
        content: what the serializer is given for a row.
        etag: version of a row; None: none is kept.
        locks: whether the row is locked while its version is compared and changed; not where a schedd is asked meanwhile.
        find: the row, where the address alone does not name it.
        parameters: that ``find`` reads from the query string.
    """

    model: type[Model]
    serializer: type[serializers.BaseSerializer[Any]]
    rows: Callable[[], Any]
    key: str = "pk"
    content: Callable[[Any], Any] = lambda row: row
    etag: Callable[[Any], str] | None = None
    locks: bool = True
    find: Callable[[HttpRequest, Any, str], Any] = lambda http, rows, key: get_object_or_404(rows, pk=key)
    parameters: tuple[OpenApiParameter, ...] = ()

    def shown(self, http: HttpRequest, row: Any, code: int = status.HTTP_202_ACCEPTED, **headers: str) -> Response:
        """A row as an answer."""
        data = self.serializer(self.content(row), context={"request": http}).data
        return Response(data, status=code, headers=headers if self.etag is None else {**headers, "ETag": self.etag(row)})

    def act(self, http: HttpRequest, key: Any, act: Callable[[Any], object]) -> tuple[Any, object]:
        """The row, and what ``act`` made of it; if need be only on the version that the client demands.

        Raises:
            Http404: no such row.
            ProblemError: it is another version by now.
            StaleState: it changed under every try.
            InvalidTransition: it does not apply.
        """
        demanded = if_match(http) if self.etag is not None else frozenset()

        def once(rows: Any) -> tuple[Any, object]:
            row = self.find(http, rows, key) if self.parameters else get_object_or_404(rows, **{self.key: key})
            if self.etag is not None:
                require_version(demanded, self.etag(row))
            return row, act(row)

        if demanded and self.locks:  # the version that was compared is the one that is changed
            return in_one_transaction(lambda: once(self.rows().select_for_update(no_key=True)))
        for _ in range(1, TRIES):
            with suppress(StaleState):
                return once(self.rows())
        return once(self.rows())


def actor_of(http: HttpRequest) -> str:
    """The name that goes into audit rows; their column holds 100 characters."""
    return http.user.get_username()[:100]


def action_method(resource: Resource, name: str, answer: Answer | None = None) -> Callable[..., Response]:
    """A view's method that does an operation; without an ``answer`` it shows the row."""
    resource_type = resource_type_of(resource.model)
    action = next(action for action in resource_type.actions if action.name == name)
    deletes, body = action.method == "delete", input_serializer(action, resource_type.name)

    def method(self: Any, request: HttpRequest, *args: Any, **key: Any) -> Response:
        serializer = body(data=query_and_body(request) if deletes else request.data)
        serializer.is_valid(raise_exception=True)
        given, actor = arguments(action, serializer.validated_data), actor_of(request)

        def act(row: Any) -> object:
            require(request.user, action, row, serializer.validated_data)
            return None if action.repeated(row, actor, given) else perform(action, row, actor, given)

        row, made = resource.act(request, next(iter(key.values())), act)
        if answer is None:
            row = made if isinstance(made, resource.model) else resource.rows().get(pk=row.pk)
            return resource.shown(request, row)
        shown_by, content = answer
        return replace(resource, serializer=shown_by, content=lambda row: content(row, made, given)).shown(request, row)

    method.__doc__ = action.does
    method.performs = action  # type: ignore[attr-defined]  # whose roles the permission asks for
    in_query = [_REASON, *(OpenApiParameter(one.name, str, description=one.help) for one in action.fields)] if deletes else []
    return extend_schema(
        parameters=[*in_query, *resource.parameters],
        request=None if deletes else body,
        responses={202: resource.serializer if answer is None else answer[0]},
        description=described(resource_type, action),
    )(method)


def described(resource_type: ResourceType, action: Action) -> str:
    """What an operation does, whether it can be undone, and who may do it."""
    return f"{action.does} {undone(resource_type, action)} Roles: {', '.join(action.roles)}."


class ActionView(ApiView):
    """One address that one operation or two of a row have."""

    def known_query_params(self) -> frozenset[str]:
        """DELETE takes its reason in the query string too."""
        action = performed_action(self, str(self.request.method))
        own = {"reason", *(one.name for one in action.fields)} if action is not None and action.method == "delete" else set()
        return self.query_params | own


def action_urls(resource: Resource, *but: str, answers: Mapping[str, Answer] = MappingProxyType({})) -> list[URLPattern]:
    """The addresses of a resource's operations, save those that a view of the app's own serves; ``answers`` of those that
    show no row.
    """
    resource_type = resource_type_of(resource.model)
    found = []
    for last in dict.fromkeys(action.path for action in resource_type.actions if action.path and action.name not in but):
        actions = {action.method: action for action in resource_type.actions if action.path == last}
        members: dict[str, Any] = {
            "serializer_class": resource.serializer,
            "versioned": frozenset(actions if resource.etag is not None else ()),
            "outside": frozenset(method for method, action in actions.items() if action.outside or not resource.locks),
            "query_params": frozenset(parameter.name for parameter in resource.parameters),
            "calls": {method: Call.STOP for method, action in actions.items() if action.stops},
            "__doc__": next(iter(actions.values())).does,
            **{method: action_method(resource, action.name, answers.get(action.name)) for method, action in actions.items()},
        }
        view: Any = type(f"{resource_type.name}_{last}_view".title().replace("_", "").replace("-", ""), (ActionView,), members)
        found.append(path(f"{resource_type.address}/{last}", view.as_view(), name=f"{resource_type.name}-{last}"))
    return found


def rows_urls(
    address: str, name: str, view: type[RowsViewSet], answers: Mapping[str, Answer] = MappingProxyType({})
) -> list[URLPattern]:
    """The addresses of a list, of its single rows, and of their operations, if they have any."""
    rows: Any = view.queryset
    kind, declared = type(rows.model._meta.pk), next((each for each in resource_types() if each.model is rows.model), None)
    key = "uuid" if kind is UUIDField else "schedd" if kind is CharField else "int"
    one = declared.address if declared is not None else f"{address}/<{key}:pk>"
    found = [
        path(address, view.as_view({"get": "list"}), name=f"{name}-list"),
        path(one, view.as_view({"get": "retrieve"}), name=f"{name}-detail"),
    ]
    serializer: Any = view.serializer_class
    if declared is not None:
        resource = Resource(rows.model, serializer, rows.all)
        LISTED[address] = resource, view.filterset_class
        found += action_urls(resource, answers=answers)
    return found


@cache
def input_serializer(action: Action, resource_type: str = "") -> type[ReasonSerializer]:
    """The body of an operation on that kind of row: its reason and its fields."""
    if not action.fields:
        return ReasonSerializer
    members: dict[str, Any] = {one.name: serializer_field(one) for one in action.fields}
    name = f"{resource_type}-{action.name}".title().replace("-", "")
    return type(f"{name}InputSerializer", (ReasonSerializer,), {**members, "__doc__": action.does})


def serializer_field(one: Field) -> Any:
    """The serializer's field of a declared one."""
    said = ". ".join(filter(None, (one.label, one.help))) or None
    named: dict[str, Any] = {"required": one.required, "help_text": said}
    default = False if one.kind is Kind.FLAG and one.blank is not None else one.default
    if default is not None:
        named = {"default": default, "help_text": said}
    if one.kind is Kind.FLAG:
        return serializers.BooleanField(**named)
    if one.kind is Kind.CHOICE:
        return WordField(choices=one.choices, **named)
    if one.is_list:
        child = {Kind.SITES: SiteField, Kind.LFNS: LfnField}.get(one.kind, TextField)(max_length=one.length)
        return serializers.ListField(child=child, min_length=1 if one.required else None, max_length=one.most_items, **named)
    if one.kind in (Kind.WHOLE, Kind.NUMBER):
        number: Any = serializers.IntegerField if one.kind is Kind.WHOLE else ShareField
        return number(min_value=one.least, max_value=one.most, **named)
    if one.kind is Kind.TEXT:
        return TextField(max_length=one.length, allow_blank=one.blank == "", **named)
    made: Any = {Kind.NAME: NameField, Kind.MOMENT: serializers.DateTimeField, Kind.NOTES: serializers.DictField}[one.kind]
    return made(**named)
