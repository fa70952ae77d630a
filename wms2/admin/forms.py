"""Forms of operations, made from their declarations: a few fields in sight, the others folded by theme.

A form is boxes alone: what was typed is checked by the serializer that REST and the command line use (``wms2.api.actions``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.forms.boundfield import BoundField
from rest_framework.exceptions import ParseError

from wms2.actions import Action, Field, Kind
from wms2.api.actions import input_serializer
from wms2.api.parsers import strict_json
from wms2.api.problems import flattened
from wms2.api.serializers import MAX_REASON


class TextsField(forms.CharField):
    """Texts with white space between them."""

    def prepare_value(self, value: Any) -> Any:
        """As they are typed."""
        return " ".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """A list."""
        return str(super().to_python(value)).split()


class NotesField(forms.CharField):
    """Names and values as JSON; anything else is left to the check, which says so."""

    def prepare_value(self, value: Any) -> Any:
        """As they are typed."""
        return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value

    def to_python(self, value: Any) -> Any:
        """What was typed, read."""
        text = str(super().to_python(value))
        try:
            return strict_json(text, "the text") if text else {}
        except ParseError:
            return text


class Folded(NamedTuple):
    """Fields below a heading. ``is_open``: one of them has a value, or is wrong."""

    theme: str
    fields: tuple[BoundField, ...]
    is_open: bool


class ReasonForm(forms.Form):
    """What every operation asks for, and its own fields."""

    _operation: ClassVar[Action]  # fields may have any other name
    reason = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80, "autofocus": True, "required": True, "maxlength": MAX_REASON}),
        help_text="Why. It stands in the history and in the audit, with your name.",
    )

    def clean(self) -> dict[str, Any]:
        """What a REST client would have sent, checked as that is."""
        given = {name: value for name, value in (super().clean() or {}).items() if value not in ("", None, [])}
        serializer = input_serializer(self._operation)(data=given)
        if serializer.is_valid():
            return dict(serializer.validated_data)
        for path, problem in flattened(serializer.errors):
            name = path.partition(".")[0]
            self.add_error(name if name in self.fields else None, problem)
        return given

    def in_sight(self) -> list[BoundField]:
        """The reason, and the fields that are usual."""
        return [self["reason"], *(self[one.name] for one in self._operation.fields_in_sight if one.name in self.fields)]

    def folded(self) -> list[Folded]:
        """The others, by theme."""
        found = []
        for theme, declared in self._operation.fields_folded.items():
            bound = tuple(self[one.name] for one in declared if one.name in self.fields)
            if bound:
                found.append(Folded(theme, bound, any(each.errors or each.value() for each in bound)))
        return found


_FIELDS: Mapping[Kind, type[forms.Field]] = {Kind.FLAG: forms.BooleanField, Kind.NOTES: NotesField}


@cache
def form_of(action: Action) -> type[ReasonForm]:
    """The form of an operation: the reason, which is always asked for, then its fields in their order."""
    made = {one.name: form_field(one) for one in action.fields}
    return type("VerbForm", (ReasonForm,), {**made, "_operation": action, "field_order": ("reason", *made)})


def form_field(one: Field) -> forms.Field:
    """The box of a declared field."""
    reported = f"{one.help[0].upper()}{one.help[1:]}." if one.help and not (one.kind is Kind.CHOICE and one.default) else ""
    named: dict[str, Any] = {"required": False, "help_text": reported, "label": one.label or None}
    if widget := _widget(one):
        named["widget"] = widget
    kind = TextsField if one.is_list else _FIELDS.get(one.kind, forms.CharField)
    return kind(**named)


def _widget(one: Field) -> forms.Widget | None:
    attrs: dict[str, Any] = {"required": True} if one.required else {}
    if one.kind is Kind.CHOICE:
        nothing = [] if one.required or one.default is not None else [("", one.blank_label)]
        return forms.Select(attrs, choices=[*nothing, *one.choices])
    if one.kind in (Kind.WHOLE, Kind.NUMBER):
        bounds = {"min": one.least, "max": one.most, "step": 1 if one.kind is Kind.WHOLE else "any"}
        return forms.NumberInput({**attrs, **{name: value for name, value in bounds.items() if value is not None}})
    if one.rows > 1:
        return forms.Textarea({**attrs, "rows": one.rows, "cols": 80})
    return forms.TextInput(attrs) if one.kind is not Kind.FLAG else None
