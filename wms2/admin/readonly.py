"""Read-only admin: rows are looked at, the life cycle and the services write them. Lists cost the same with 100,000 requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import models
from django.db.models import JSONField, Prefetch, QuerySet
from django.http import HttpRequest

from wms2.admin.actions import ActionsAdmin
from wms2.admin.shown import badge_column, json_field, link_column, of_user, plain_column, since_column, worded
from wms2.identities.grants import enters_admin
from wms2.web.formatting import spelled

#: Text columns that are as large as documents.
_LARGE_TEXT = frozenset({"psets"})
#: ``exact_search`` of rows that belong to a workflow.
OF_REQUEST: Mapping[str, str] = {"workflow__request__request_name": "a request's whole name"}
#: Of rows that belong to a request.
BY_REQUEST: Mapping[str, str] = {"request__request_name": "a request's whole name"}
#: Columns that are shown as badges.
_STATUSES = ("status", "state", "validity")
#: Rows that can be paged through; what lies behind is found by searching or filtering.
MOST = 2_000


class BoundedPaginator(Paginator):
    """Counts no further than anybody pages: the pager asks for a count of every list, and tables have millions of rows."""

    object_list: Any

    @cached_property
    def count(self) -> int:
        """At most ``MOST``; PostgreSQL stops there."""
        return min(self._found, MOST)

    @cached_property
    def more(self) -> bool:
        """Whether rows are left behind the last page."""
        return self._found > MOST

    @cached_property
    def _found(self) -> int:
        return int(self.object_list.order_by()[: MOST + 1].count())


class SeenByAll(admin.ModelAdmin):
    """All whom the admin lets in may look; lists count no further than anybody pages."""

    show_full_result_count = False
    paginator = BoundedPaginator

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """All whom the admin lets in."""
        return enters_admin(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """As above."""
        return self.has_view_permission(request)


class ReadOnlyAdmin(ActionsAdmin, SeenByAll):
    """No adding, no deleting, no saving; all whom the admin lets in may look.

    A list, newest first, reads rows that it links to in the same query, and JSON columns neither of its own rows nor of these; it
    counts at most so far as it pages, and never counts facets. A row's page shows JSON indented.
    """

    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    change_form_template = "admin/wms2/row.html"
    ordering: ClassVar[Any] = ("-pk",)
    sortable_by: ClassVar[Any] = ()
    #: Lookups and what they are called, tried one after the other with the whole text that is searched for, each over an index;
    #: the first with rows counts. Several in one condition (``search_fields``) would read whole tables where they join.
    exact_search: ClassVar[Mapping[str, str]] = {}
    #: What a row's page says first, beside its columns, and what has to be read for that.
    first: ClassVar[Sequence[Callable[[Any], Any]]] = ()
    prefetched: ClassVar[Sequence[Prefetch]] = ()
    #: Columns that a row's page does not show as they are stored, and what it says of a row instead.
    in_words: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        if words := ", or ".join(cls.exact_search.values()):
            cls.search_help_text = f"{words[0].upper()}{words[1:]}."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows with the rows they point to, large columns left in the database until asked for."""
        rows = super().get_queryset(request).prefetch_related(*self.prefetched)
        relations = [field.name for field in self.opts.concrete_fields if field.is_relation]
        match = request.resolver_match
        if match is not None and match.url_name is not None and match.url_name.endswith("_change"):
            return lean(rows, relations)
        shown = {getattr(column, "relation", column) for column in self.list_display}
        own = [field.name for field in large_fields(self.model) if field.name not in shown]
        return lean(rows, [name for name in relations if name in shown]).defer(*own)

    def get_list_display(self, request: HttpRequest) -> Any:
        """As declared, for this user."""
        return [of_user(column, request.user) for column in super().get_list_display(request)]

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """The first column that leads nowhere else: a link in a link has no text to click at."""
        return super().get_list_display_links(request, [each for each in list_display if not hasattr(each, "relation")])

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All columns, in readable form."""
        return [*(of_user(column, request.user) for column in self.first), *self._readable.values()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """As declared, in readable form."""
        return [
            (name, {**options, "fields": [self._readable.get(str(field), field) for field in options["fields"]]})
            for name, options in super().get_fieldsets(request, obj)
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All that are shown, whatever groups them."""
        return [field for _, options in self.get_fieldsets(request, obj) for field in options["fields"]]

    @cached_property
    def _readable(self) -> dict[str, Any]:
        """By column, what a row's page shows of it."""
        found: dict[str, Any] = {field.name: field.name for field in self.opts.fields}
        found |= {field.name: json_field(field) for field in self.opts.fields if isinstance(field, JSONField)}
        return found | {name: worded(self.opts.get_field(name), words) for name, words in self.in_words.items()}  # type: ignore[arg-type]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """With names of columns as people write them."""
        labels = {field.name: spelled(str(field.verbose_name)) for field in self.opts.fields}
        return super().get_form(request, obj, change, labels=labels, **kwargs)

    def get_search_fields(self, request: HttpRequest) -> Any:
        """The search box is there for either kind."""
        return tuple(self.exact_search) or super().get_search_fields(request)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> tuple[QuerySet[Any], bool]:
        """Whole values where ``exact_search`` names lookups, else parts as Django does it."""
        term = search_term.strip()
        if not self.exact_search or not term:
            return super().get_search_results(request, queryset, search_term)
        for lookup in self.exact_search:
            try:
                found = queryset.filter(**{lookup: term})
                if found.exists():
                    return found, False
            except (ValidationError, ValueError):  # no such value of this column's type
                continue
        return queryset.none(), False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows come from services, are changed by operations, and are never deleted by hand."""
        return False

    has_change_permission = has_delete_permission = has_add_permission


def rows_admin(
    model: type[models.Model],
    *columns: Any,
    filters: Sequence[Any] = (),
    search: Mapping[str, str] = MappingProxyType({}),
    parts: Sequence[str] = (),
    order: Sequence[str] = ("-pk",),
    links: Sequence[tuple[str, type[models.Model], str]] = (),
    in_words: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    above: Callable[[], str] = lambda: "",
    first: Sequence[Callable[[Any], Any]] = (),
    prefetched: Sequence[Prefetch] = (),
) -> None:
    """Have the rows of a model looked at that need nothing of their own.

    Args:
        columns: names are shown as their fields are: links, ages, badges; ``=name`` as it stands.
        filters, search, parts, order: ``list_filter``, ``exact_search``, ``search_fields``, ``ordering``.
        links, in_words, above, first, prefetched: as ``ActionsAdmin`` and ``ReadOnlyAdmin`` have them; ``in_words`` for a column
            of the list, too.
    """
    members = {
        "list_display": tuple(_column(model, each, in_words) for each in columns), "list_filter": filters, "exact_search": search,
        "search_fields": parts, "ordering": order, "links": links, "in_words": in_words, "first": first,
        "prefetched": prefetched, "above": staticmethod(above), "__doc__": model.__doc__,
    }  # fmt: skip
    admin.site.register(model, type(f"{model.__name__}Admin", (ReadOnlyAdmin,), members))


def _column(model: type[models.Model], column: Any, in_words: Mapping[str, Callable[[Any], Any]]) -> Any:
    named = column.removeprefix("=") if isinstance(column, str) else column
    field = next((each for each in model._meta.concrete_fields if each.name == named), None)
    if field is not None and named in in_words:
        return worded(field, in_words[named])
    if isinstance(field, models.ForeignKey):
        return link_column(column)
    if isinstance(field, models.DateTimeField) and column == named:
        return since_column(column, spelled(column.removesuffix("_at")))
    if field is not None and field.choices and column in _STATUSES:
        return badge_column(column)
    # JSON stays a name, by which the list knows to read it.
    if field is None or isinstance(field, JSONField):
        return named
    misspelled = spelled(str(field.verbose_name)) != field.verbose_name
    return plain_column(field) if misspelled or isinstance(field, models.UUIDField) else named


def large_fields(model: type[models.Model]) -> list[Any]:
    """Columns that may be as large as a document."""
    return [field for field in model._meta.concrete_fields if isinstance(field, JSONField) or field.name in _LARGE_TEXT]


def lean(rows: QuerySet[Any], relations: Iterable[str]) -> QuerySet[Any]:
    """``select_related`` without the large columns of the related rows."""
    relations = list(relations)
    if not relations:
        return rows
    deferred = []
    for relation in relations:
        model = rows.model
        for name in relation.split("__"):
            model = model._meta.get_field(name).related_model
        deferred += [f"{relation}__{field.name}" for field in large_fields(model)]
    return rows.select_related(*relations).defer(*deferred)
