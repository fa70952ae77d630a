"""What operators may do to rows, declared once: name, service, fields with their bounds, what refuses it, what it would do.

The REST interface (``wms2.api.actions``), the admin (``wms2.admin.actions``), the buttons of the pages, the command line
(``manage.py operate``) and ``docs/operations.md`` are made from these declarations; each app has its own in ``<app>/actions.py``.
Owns: the form of a declaration, and the registry. Does not own: any operation, or how one is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from django.db.models import Model, QuerySet
from pydantic.fields import FieldInfo

from wms2.errors import ConfigurationError, DocumentRefused, InvalidTransition, ServiceError, StaleState

#: primary key -> sentences
Messages = Mapping[Any, Sequence[str]]
#: What a service may answer an operation with.
REFUSALS = (InvalidTransition, StaleState, ConfigurationError, DocumentRefused, ServiceError)
#: A field that was not given is left out, so that the service's own default holds.
OMIT: Any = object()
#: How far above an exclusive bound a share begins.
_ABOVE = 1e-6
#: An operation with no more fields than these shows them all; of one with more the usual ones, the others folded.
FEW_FIELDS = 3
#: Of what belongs to no theme.
OTHERS = "Further"
#: Of a site's name, and of a file's.
LONGEST_SITE, LONGEST_LFN = 100, 700


class AlreadyDone(str):
    """Already in the requested state; a client that asks again gets success."""

    __slots__ = ()


def must_apply(row: object, why: str) -> None:
    """Raises InvalidTransition where there is a reason why not, also that it is so already."""
    if why:
        raise InvalidTransition(f"{row}: {why}")


def applies(row: object, why: str) -> bool:
    """Whether there is something to do to a row, where ``why`` is why not; there is not if what was asked for is so already.

    Raises:
        InvalidTransition: the operation is refused.
    """
    if not isinstance(why, AlreadyDone):
        must_apply(row, why)
    return not why


class Role(StrEnum):
    """Who may do something. Requesters and site admins: on rows of their own alone."""

    VIEWER = "viewer"
    REQUESTER = "requester"
    SITE_ADMIN = "site admin"
    OPERATOR = "operator"
    ADMIN = "admin"


class Owned(NamedTuple):
    """Whose a row is: users by name, CMS groups, sites. What is in none of them is the operators' alone."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    sites: frozenset[str] = frozenset()


class Kind(StrEnum):
    """What a field takes."""

    TEXT = "text"
    NAME = "request name"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "true or false"
    CHOICE = "one of"
    TEXTS = "list of texts"
    SITES = "list of sites"
    LFNS = "list of LFNs"
    MOMENT = "time"
    NOTES = "names and values"


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that an operation asks for beside its reason.

    Args:
        name: as clients, forms and the service spell it.
        help: a sentence without its capital letter and full stop.
        least, most: of a number; inclusive.
        most_items: of a list.
        length: of a text, or of each text of a list.
        choices: value and what it means.
        default: of a choice; without one, and where it is not required, ``blank_label`` says what nothing means.
        convert: makes the service's value of what came.
        blank: what the service gets when nothing came.
        rows: lines of its box in a form; 1: a single line.
        roles: who may give it, where not all may who may do the operation; never of a required field.
        label: what people read beside it; without it its name.
        theme: the heading below which forms fold it.
        usual: it stands in sight, beside the reason.
    """

    name: str
    kind: Kind = Kind.TEXT
    help: str = ""
    required: bool = False
    least: float | None = None
    most: float | None = None
    most_items: int | None = None
    length: int | None = None
    choices: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    blank_label: str = ""
    convert: Callable[[Any], Any] = lambda value: value
    blank: Any = OMIT
    rows: int = 1
    roles: tuple[Role, ...] = ()
    label: str = ""
    theme: str = OTHERS
    usual: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it takes several texts."""
        return self.kind in (Kind.TEXTS, Kind.SITES, Kind.LFNS)


def sites(name: str, help: str = "", **more: Any) -> Field:
    """A field of sites' names."""
    return Field(name, Kind.SITES, help, length=LONGEST_SITE, most_items=500, **more)


def lfns(name: str, help: str, most: int, **more: Any) -> Field:
    """A field of files' names, at most so many."""
    return Field(name, Kind.LFNS, help, length=LONGEST_LFN, most_items=most, **more)


def field_of(name: str, info: FieldInfo, **more: Any) -> Field:
    """A field with the bounds that a pydantic model declares for it; a tuple is one of texts."""
    if any(get_origin(each) is tuple for each in get_args(info.annotation)):
        return Field(name, Kind.TEXTS, info.description or "", length=200, most_items=100, **more)
    bounds: dict[str, Any] = {}
    whole = int in (info.annotation, *get_args(info.annotation))
    for found in info.metadata:
        match found:
            case Ge():
                bounds["least"] = found.ge
            case Gt():
                bounds["least"] = found.gt + (1 if whole else _ABOVE)  # type: ignore[operator]
            case Le():
                bounds["most"] = found.le
            case Lt():
                bounds["most"] = found.lt - (1 if whole else _ABOVE)  # type: ignore[operator]
    return Field(name, Kind.WHOLE if whole else Kind.NUMBER, info.description or "", **bounds, **more)


def preview_each(report: Callable[[Any], Sequence[str]]) -> Callable[[Sequence[Any]], Messages]:
    """A preview that looks at one row at a time."""
    return lambda rows: {row.pk: report(row) for row in rows}


@dataclass(frozen=True, slots=True)
class Action:
    """One operation on rows of one model.

    Args:
        name: its word in addresses of the admin and on the command line, e.g. ``abort``.
        label: on buttons.
        does: one or two sentences for the documents and the OpenAPI schema.
        service: called with the row under the resource's word, ``actor``, ``reason`` and the fields. If it returns another row of
            the model, the operator lands there (a restart's new version).
        preview: rows -> by primary key, what will happen, in sentences; may ask the database, once for all. None where nothing
            is computed: then ``does`` says it.
        refused: why it does not apply to a row now; empty when it does, as far as is known: the service judges the rest.
        repeated: whether a client asks for what was done already; then it is answered as if it had just been done. Services that
            can be called twice need none.
        prepare: makes the service's arguments of the reason and the fields; may ask services, no row is locked yet.
        outside: whether ``prepare`` or the service asks others, so that no transaction may be open around them.
        initial: row -> what the form starts with.
        former: row -> what it has of the fields, for the way back; None: ``initial``. Nothing is taken from it unasked.
        seen: (value, label) of what the decision rests on, where it is not the resource's.
        path: REST: last part of the address after the row's; empty: the row's own; None: no address of its own.
        admin: whether it is a button.
        single: only for one row at a time.
        roles: any of which may do it.
        inverse: the name of the operation on the same row that takes it back, its own where the former values are set again.
        dangerous: cannot be undone, and is shown so.
        stops: takes work away; so it is served however much else is asked of WMS2.
        fits: row, user -> whether pages offer it to them now; for what is about who asks, not about the row.
    """

    name: str
    label: str
    does: str
    service: Callable[..., object]
    preview: Callable[[Sequence[Any]], Messages] | None = None
    fields: tuple[Field, ...] = ()
    refused: Callable[[Any], str] = lambda row: ""
    repeated: Callable[[Any, str, Mapping[str, Any]], bool] = lambda row, actor, data: False
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given
    outside: bool = False
    initial: Callable[[Any], Mapping[str, Any]] = lambda row: {}
    former: Callable[[Any], Mapping[str, Any]] | None = None
    seen: Callable[[Any], tuple[str, str]] | None = None
    path: str | None = None
    method: Literal["post", "delete"] = "post"
    admin: bool = True
    single: bool = False
    roles: tuple[Role, ...] = (Role.OPERATOR,)
    inverse: str | None = None
    dangerous: bool = False
    stops: bool = False
    fits: Callable[[Any, Any], bool] = lambda row, user: True

    @property
    def fields_in_sight(self) -> tuple[Field, ...]:
        """Those that a form shows at once: what is required, the usual ones, or all where there are few."""
        few = len(self.fields) <= FEW_FIELDS
        return tuple(one for one in self.fields if few or one.required or one.usual)

    @property
    def fields_folded(self) -> dict[str, tuple[Field, ...]]:
        """The others, by theme."""
        seen, found = self.fields_in_sight, dict[str, tuple[Field, ...]]()
        for one in self.fields:
            if one not in seen:
                found[one.theme] = (*found.get(one.theme, ()), one)
        return found

    @property
    def many(self) -> bool:
        """Whether a bulk run may do it to many rows; not where it asks others, since it could not be done at most once."""
        return not self.single and not self.outside and self.path is not None


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A model whose rows have operations.

    Args:
        name: on the command line, e.g. ``request``.
        argument: the services' name for the row.
        find: rows of a name as people write it.
        seen: (value, label) of where a row stands, usually its status.
        address: REST: of one row, below ``/api/v1/``; empty: none.
        owner: whose a row is, for the roles that hold on rows of one's own alone; read from the row, without a query.
        status_detail: further sentences on a row's page in the admin.
        fitting: row -> names of the operations that its status calls for, the likeliest first; pages show these as buttons.
        themes: heading -> names of the operations below it, where pages list the others.
    """

    model: type[Model]
    name: str
    argument: str
    find: Callable[[str], QuerySet[Any] | Sequence[Any]]
    seen: Callable[[Any], tuple[str, str]]
    address: str = ""
    status_detail: Callable[[Any], Sequence[str]] = lambda row: ()
    owner: Callable[[Any], Owned] = lambda row: Owned()
    fitting: Callable[[Any], Sequence[str]] = lambda row: ()
    themes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    actions: tuple[Action, ...] = field(default=(), compare=False)


_RESOURCE_TYPES: dict[type[Model], ResourceType] = {}


def declare(resource_type: ResourceType, *actions: Action) -> None:
    """Give the rows of a model these operations, in this order."""
    _RESOURCE_TYPES[resource_type.model] = replace(resource_type, actions=actions)


def extend(
    model: type[Model],
    *actions: Action,
    reported: Callable[[Any], Sequence[str]] | None = None,
    of: Sequence[str] = (),
    status_detail: Callable[[Any], Sequence[str]] | None = None,
) -> None:
    """From an app above the model's: further operations, more sentences in the previews of those named ``of``, and on rows'
    pages.
    """
    resource_type = _RESOURCE_TYPES[model]
    if status_detail is not None:
        resource_type = replace(resource_type, status_detail=status_detail)
    known = tuple(
        _reporting(action, reported) if reported is not None and action.name in of else action for action in resource_type.actions
    )
    _RESOURCE_TYPES[model] = replace(resource_type, actions=(*known, *actions))


def _reporting(action: Action, reported: Callable[[Any], Sequence[str]]) -> Action:
    def preview(rows: Sequence[Any]) -> Messages:
        first = will_happen(action, rows)
        return {row.pk: [*first[row.pk], *reported(row)] for row in rows}

    return replace(action, preview=preview)


def will_happen(action: Action, rows: Sequence[Any]) -> Messages:
    """By primary key, what an operation will do to these rows."""
    reported = action.preview(rows) if action.preview else {}
    return {row.pk: reported.get(row.pk, ()) if action.preview else (action.does,) for row in rows}


def inverse_of(resource_type: ResourceType, action: Action) -> Action | None:
    """The operation that takes another back; None: it has no inverse."""
    return None if action.dangerous else next((each for each in resource_type.actions if each.name == action.inverse), None)


def undone(resource_type: ResourceType, action: Action) -> str:
    """Whether it can be taken back, and how; one sentence."""
    if action.dangerous:
        return "It cannot be undone."
    if (inverse := inverse_of(resource_type, action)) is None:
        return "No operation undoes it."
    if inverse is action:
        return "It can be undone by setting the former values again."
    return f"It can be undone with {inverse.label}."


def resource_types() -> tuple[ResourceType, ...]:
    """All of them, by name."""
    return tuple(sorted(_RESOURCE_TYPES.values(), key=lambda resource_type: resource_type.name))


def resource_type_of(model: type[Model]) -> ResourceType:
    """The declaration of a model, with all that other apps have added."""
    return _RESOURCE_TYPES[model]


def status_details_of(row: Any) -> Sequence[str]:
    """Further sentences on a row's page; none where nothing is declared."""
    resource_type = _RESOURCE_TYPES.get(type(row))
    return resource_type.status_detail(row) if resource_type is not None else ()


def buttons_of(model: type[Model]) -> tuple[Action, ...]:
    """The operations of a model that are buttons; none where nothing is declared."""
    resource_type = _RESOURCE_TYPES.get(model)
    return tuple(action for action in resource_type.actions if action.admin) if resource_type is not None else ()


def is_given(value: Any) -> bool:
    """Whether a box of a form was filled; 0 is something."""
    return value is not None and value is not False and value not in ("", [], {})


def arguments(action: Action, data: Mapping[str, Any]) -> dict[str, Any]:
    """What the service is given beside the row and the actor; to be made before any row is locked. Raises FieldRefused: a field
    names what is not there."""
    given: dict[str, Any] = {"reason": data["reason"]}
    for one in action.fields:
        value = data.get(one.name)
        if value is not None and value != "" and value != []:
            given[one.name] = one.convert(value)
        elif one.blank is not OMIT:
            given[one.name] = one.blank
    return action.prepare(given)


def perform(action: Action, row: Any, actor: str, given: Mapping[str, Any]) -> object:
    """Call the service with what :func:`arguments` made. Raises REFUSALS: why not."""
    argument = _RESOURCE_TYPES[type(row)].argument
    return action.service(**{argument: row}, actor=actor, **given)


def decision_basis(action: Action, row: Any) -> tuple[str, str]:
    """(value, label) of what a decision on the operation rests on."""
    return (action.seen or _RESOURCE_TYPES[type(row)].seen)(row)
