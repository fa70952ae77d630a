"""Operations: what operators may do to rows, as buttons on a row's page and as actions of its list.

Each leads to a page that names the rows and where they stand, says what will happen to each, asks for a reason, and then calls
the service that the REST interface calls. A row that changed since the page was shown is not touched: the page comes back with
what would happen now. Services audit, refusals included.

What operations there are is declared in the apps' ``actions`` (``wms2.actions``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from wms2.actions import (
    OTHERS,
    REFUSALS,
    Action,
    arguments,
    buttons_of,
    decision_basis,
    inverse_of,
    is_given,
    perform,
    resource_type_of,
    status_details_of,
    undone,
    will_happen,
)
from wms2.admin.forms import ReasonForm, form_of
from wms2.admin.shown import admin_url, badge, list_url
from wms2.errors import FieldRefused
from wms2.identities.grants import denial, enters_admin, may, require
from wms2.runtime.locks import BEING_CHANGED, lock_refused
from wms2.web.formatting import counted

#: Rows that one confirmation may concern; each is named on its page.
MOST_ROWS = 50
#: Operations that stand beside a row's name; the others are folded.
MOST_FITTING = 3
#: Before the names of fields in an address.
_VALUE = "to."
#: Lines of a preview below which the reason is in sight; below more it has no focus, which would scroll them away.
SHORT_PREVIEW = 12


@dataclass(frozen=True, slots=True)
class Concerned:
    """One row on the page of confirmation."""

    row: Any
    url: str
    seen: str
    badge: str
    will_happen: Sequence[str]
    refusal: str
    acts: bool


class Button(NamedTuple):
    """An operation on a page."""

    name: str
    label: str
    url: str
    dangerous: bool


def buttons(user: Any, row: Model, back: str = "", names: Sequence[str] | None = None) -> list[Button]:
    """Of the operations that a user may do and that apply to a row now, all or those of these names, in the order of declaration.
    They are pages of the admin, which not all may open."""
    if not enters_admin(user):
        return []
    named = [action for action in buttons_of(type(row)) if names is None or action.name in names]
    actions = [each for each in named if not denial(user, each, row) and not each.refused(row) and each.fits(row, user)]
    return [
        Button(action.name, action.label, action_url(type(row), action.name, [row.pk], back), action.dangerous)
        for action in actions
    ]


class Offered(NamedTuple):
    """Operations as a row's page offers them: those that its status calls for, and the others by theme."""

    fitting: Sequence[Button]
    others: Mapping[str, Sequence[Button]]


def offered(user: Any, row: Model, back: str) -> Offered:
    """The operations that a user may do and that apply to a row now."""
    declared, found = resource_type_of(type(row)), {each.name: each for each in buttons(user, row, back)}
    fitting = [found.pop(name) for name in declared.fitting(row) if name in found][:MOST_FITTING]
    others = {theme: [found.pop(name) for name in names if name in found] for theme, names in declared.themes.items()}
    others[OTHERS] = list(found.values())
    return Offered(fitting, {theme: each for theme, each in others.items() if each})


def action_url(
    model: type[Model], action: str, keys: Sequence[Any], back: str = "", values: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Address of the page of confirmation; ``back`` is the page it leads back to, by default the row's own in the admin; its form
    begins with ``values``."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_action", args=[action])
    given = [("id", str(key)) for key in keys] + ([("back", back)] if back else [])
    given += [(f"{_VALUE}{name}", " ".join(value) if isinstance(value, list) else str(value)) for name, value in values.items()]
    return f"{url}?{urlencode(given)}"


class ActionsAdmin(ModelAdmin):
    """List actions, buttons and the page of confirmation of the model's operations."""

    #: (text, model, by which of its lookups) of lists of what belongs to a row.
    links: Sequence[tuple[str, type[Model], str]] = ()
    #: A warning above the list and each row; empty: none.
    above: Callable[[], str] = staticmethod(lambda: "")

    def get_urls(self) -> list[URLPattern]:
        """The page of confirmation beside the usual ones."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_action"
        own = path("verb/<slug:action>/", self._action_view, name=name)
        return [own, *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """One for each operation that the user may do."""
        actions = [action for action in buttons_of(self.model) if not action.single and may(request.user, action)]
        return {action.name: (partial(_go_to_page, action), action.name, f"{action.label} …") for action in actions}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list. Filters for what PostgreSQL cannot hold, and keys that are not keys, are reported in Django's own way."""
        keys = request.POST.getlist(ACTION_CHECKBOX_NAME)
        try:
            wrong = "\0" in "".join([*keys, *(value for _, values in request.GET.lists() for value in values)])
            for key in keys:
                self.model._meta.pk.to_python(key)
        except ValidationError:
            wrong = True
        if wrong:
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        self._warn(request)
        return super().changelist_view(request, extra_context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The row's page, with its buttons. The key comes as Django writes it into addresses (``_`` as ``_5F``)."""
        row = None if "\0" in object_id else self.get_object(request, unquote(object_id))
        if row is None:  # also for keys that PostgreSQL would not take
            raise Http404("no such row")
        self._warn(request)
        own = {
            "action_buttons": buttons(request.user, row),
            "row_links": self.row_links(row),
            "row_status": status_details_of(row),
        }
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **own})

    def _warn(self, request: HttpRequest) -> None:
        if request.method == "GET" and (warning := self.above()):
            messages.warning(request, warning)

    def row_links(self, row: Any) -> list[tuple[str, str]]:
        """(text, address) of further buttons on a row's page: its live page, if it has one, and lists."""
        links = [("Live page", row.get_absolute_url())] if hasattr(row, "get_absolute_url") else []
        for text, model, by in self.links:
            key: Any = model._meta.get_field(by)
            # as the lists' filters are addressed
            lookup = f"{by}__id__exact" if key.target_field.name == "id" else f"{by}__exact"
            links.append((text, list_url(model, f"{lookup}={row.pk}")))
        return links

    def action_rows(self, keys: Sequence[str]) -> list[Any]:
        """The rows of these keys, those that exist."""
        rows = {str(row.pk): row for row in self.model._default_manager.filter(pk__in=keys)}
        return [rows[key] for key in dict.fromkeys(keys) if key in rows]

    def _action_view(self, request: HttpRequest, action: str) -> HttpResponse:
        """The page, for whom the admin is open. Who is signed in without a role learns which one the operation asks for."""
        if request.user.is_authenticated and not enters_admin(request.user) and (found := self._action(action)):
            require(request.user, found)
        answer: HttpResponse = self.admin_site.admin_view(self.action_view)(request, action=action)
        return answer

    def _action(self, name: str) -> Action | None:
        return next((known for known in buttons_of(self.model) if known.name == name), None)

    def action_view(self, request: HttpRequest, action: str) -> HttpResponse:
        """Ask (GET), then do (POST)."""
        found = self._action(action)
        if found is None:
            raise Http404(f"there is no verb {action!r} here")
        require(request.user, found)
        rows = self._concerned_rows(request)
        for row in rows:
            require(request.user, found, row)
        if request.method == "POST":
            return self._decide(request, found, rows)
        # What a single row has; what the address says goes before it.
        said = {name.removeprefix(_VALUE): value for name, value in request.GET.items() if name.startswith(_VALUE)}
        initial = {**found.initial(rows[0]), **(_former(found, rows[0]) if len(rows) == 1 else {}), **said}
        return self._page(request, found, rows, form_of(found)(initial=initial))

    def _concerned_rows(self, request: HttpRequest) -> list[Any]:
        source = request.POST if request.method == "POST" else request.GET
        keys = source.getlist("id")
        if len(keys) > MOST_ROWS:
            raise Http404(f"at most {MOST_ROWS} rows at once")
        try:
            rows = self.action_rows([key for key in keys if "\0" not in key])
        except (ValidationError, ValueError) as error:
            raise Http404("no such row") from error
        if not rows:
            raise Http404("no such row")
        return rows

    def _decide(self, request: HttpRequest, action: Action, rows: list[Any]) -> HttpResponse:
        form = form_of(action)(request.POST)
        if not form.is_valid():
            return self._page(request, action, rows, form, status=400)
        shown = dict(zip(request.POST.getlist("id"), request.POST.getlist("seen"), strict=False))
        actor = request.user.get_username()[:100]
        for row in rows:
            require(request.user, action, row, form.cleaned_data)
        try:
            given = arguments(action, form.cleaned_data)
        except REFUSALS as error:
            why_not = {row.pk: str(error) for row in rows}
            return self._page(request, action, rows, _marked(form, error), status=409, refused=why_not)
        former = {row.pk: _former(action, row) for row in rows}
        refused: dict[Any, str] = {}
        results: list[tuple[Any, object]] = []
        for row in rows:
            why = _changed(action, row, shown.get(str(row.pk), ""))
            try:
                if not why:
                    results.append((row, perform(action, row, actor, given)))
            except REFUSALS as error:
                why, _ = str(error), _marked(form, error)
            except OperationalError as error:
                if not lock_refused(error):
                    raise
                why = BEING_CHANGED
            if why:
                refused[row.pk] = why
        if results:
            messages.success(request, self._confirmation(request, action, self._as_they_are([row for row, _ in results]), former))
        if not refused:
            return HttpResponseRedirect(self._landing(request, results))
        left = self.action_rows([str(row.pk) for row in rows if row.pk in refused])
        return self._page(request, action, left, form, status=409, refused=refused)

    def _as_they_are(self, rows: Sequence[Any]) -> list[Any]:
        """Read again, since services may change rows without the object at hand; those that are gone as they were."""
        now = {row.pk: row for row in self.action_rows([str(row.pk) for row in rows if row.pk is not None])}
        return [now.get(row.pk, row) for row in rows]

    def _answer(self, action: Action, rows: Sequence[Any]) -> str:
        """One sentence or two, however many rows were acted on."""
        status_detail = Counter(decision_basis(action, row)[1] for row in rows)
        if len(rows) == 1:
            label = next(iter(status_detail))
            return f"{self._title(action, rows)}." + (f" It is {label} now." if label else "")
        reported = ", ".join(f"{number} {label}" for label, number in status_detail.most_common() if label)
        return f"{self._title(action, rows)}." + (f" Now {reported}." if reported else "")

    def _confirmation(
        self, request: HttpRequest, action: Action, rows: Sequence[Any], former: Mapping[Any, Mapping[str, Any]]
    ) -> SafeString:
        """What was done, and the way back, where there is one and the user may go it."""
        inverse = inverse_of(resource_type_of(self.model), action)
        offers = [row for row in rows if inverse is not None and not denial(request.user, inverse, row)]
        said = format_html("{}", self._answer(action, rows))
        if inverse is None or not offers or (inverse.single and len(offers) > 1):
            return said
        values = former[offers[0].pk] if inverse is action else {}
        if inverse is action and (len(offers) > 1 or not values):
            return said
        if inverse is not action and (waits := inverse.refused(offers[0])):
            return format_html("{} {} takes it back, not yet: {}", said, inverse.label, waits)
        url = action_url(self.model, inverse.name, [row.pk for row in offers], self._back(request, rows), values)
        label = "Set back as it was" if inverse is action else f"Take it back: {inverse.label}"
        return format_html('{} <a class="way-back" href="{}">{} …</a>', said, url, label)

    def _landing(self, request: HttpRequest, results: Sequence[tuple[Any, object]]) -> str:
        """Where the operator came from; after an operation that made a new row, the same kind of page of that one."""
        (row, made), *more = results
        back = self._back(request, [row for row, _ in results])
        if more or not isinstance(made, self.model) or made.pk == row.pk:
            return back
        live = getattr(row, "get_absolute_url", None)
        return made.get_absolute_url() if live and back == live() else self._url(made)

    def _page(
        self,
        request: HttpRequest,
        action: Action,
        rows: Sequence[Any],
        form: ReasonForm,
        status: int = 200,
        refused: Mapping[Any, str] | None = None,
    ) -> TemplateResponse:
        concerned = self._concerned(action, rows, refused or {})
        for one in action.fields:
            if one.roles and denial(request.user, replace(action, roles=one.roles)):
                del form.fields[one.name]
        if sum(1 + len(one.will_happen) for one in concerned) > SHORT_PREVIEW:
            form.fields["reason"].widget.attrs.pop("autofocus", None)
        context = {
            **self.admin_site.each_context(request),
            "title": self._title(action, rows),
            "opts": self.opts,
            "action": action,
            "undone": _undone(request.user, self.model, action),
            "form": form,
            "concerned": concerned,
            "acting": sum(one.acts for one in concerned),
            "refused": bool(refused),
            "back": self._back(request, rows),
            "given_back": _given_back(request),
            "media": self.media,
        }
        return TemplateResponse(request, "admin/wms2/action.html", context, status=status)

    def _concerned(self, action: Action, rows: Sequence[Any], refused: Mapping[Any, str]) -> list[Concerned]:
        reported = will_happen(action, rows)
        found = []
        for row in rows:
            value, label = decision_basis(action, row)
            inapplicable = action.refused(row)
            happens = () if inapplicable else reported[row.pk]
            refusal = refused.get(row.pk) or inapplicable
            found.append(Concerned(row, self._url(row), value, badge(value, label), happens, refusal, not inapplicable))
        return found

    def _url(self, row: Any) -> str:
        return admin_url(row)

    def _back(self, request: HttpRequest, rows: Sequence[Any]) -> str:
        if given := _given_back(request):
            return given
        if len(rows) == 1:
            return self._url(rows[0])
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _title(self, action: Action, rows: Sequence[Any]) -> str:
        several = counted(len(rows), str(self.opts.verbose_name), str(self.opts.verbose_name_plural))
        return f"{action.label}: {rows[0] if len(rows) == 1 else several}"


def _go_to_page(action: Action, model_admin: Any, request: HttpRequest, rows: Any) -> HttpResponse | None:
    keys = list(rows.order_by().values_list("pk", flat=True)[: MOST_ROWS + 1])
    if len(keys) > MOST_ROWS:
        messages.error(request, f"At most {MOST_ROWS} at once, so that each can be named. Select fewer.")
        return None
    return HttpResponseRedirect(action_url(model_admin.model, action.name, keys, back=request.get_full_path()))


def _undone(user: Any, model: type[Model], action: Action) -> str:
    """Whether it can be taken back and how, and by whom where that is for others."""
    declared = resource_type_of(model)
    sentence = undone(declared, action)
    inverse = inverse_of(declared, action)
    if inverse is None or may(user, inverse):
        return sentence
    return f"{sentence.removesuffix('.')}; that needs the role {' or '.join(inverse.roles)}."


def _given_back(request: HttpRequest) -> str:
    """The page of this site that the operator came from, as the link to the operation said; empty when it said none."""
    back = (request.POST if request.method == "POST" else request.GET).get("back", "")
    here = url_has_allowed_host_and_scheme(back, allowed_hosts=None)
    return back if here else ""


def _former(action: Action, row: Any) -> Mapping[str, Any]:
    """What a row has of the operation's fields, as texts and lists; empty: nothing, which what is required cannot be."""
    has, required = (action.former or action.initial)(row), {one.name for one in action.fields if one.required}
    given = {name: value if is_given(value) else "" for name, value in has.items()}
    kept = {name: value for name, value in given.items() if value != "" or name not in required}
    return {name: json.dumps(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def _marked(form: ReasonForm, error: Exception) -> ReasonForm:
    """The form, with what a service says of one of its fields beside that."""
    if isinstance(error, FieldRefused) and error.field in form.fields:
        form.add_error(error.field, str(error))
    return form


def _changed(action: Action, row: Any, seen: str) -> str:
    """Whether the row is no longer what the operator was shown."""
    value, label = decision_basis(action, row)
    return "" if value == seen else f"It has changed since you were asked: it is {label} now. See below what would happen."
