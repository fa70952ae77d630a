"""Forms of operations, made from their declarations."""

from __future__ import annotations

from functools import cache
from typing import Any

from django import forms

from wms2.actions import Action, Field, Kind
from wms2.api.converters import name_validator


class ReasonForm(forms.Form):
    """What every operation asks for."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80, "autofocus": True}),
        help_text="Why. It stands in the history and in the audit, with your name.",
    )


class TextsField(forms.CharField):
    """Texts with white space between them."""

    def prepare_value(self, value: Any) -> Any:
        """As they are typed."""
        return " ".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """A list."""
        return str(super().to_python(value)).split()


class NotesField(forms.JSONField):
    """Names and values."""

    def clean(self, value: Any) -> Any:
        """Nothing else."""
        found = super().clean(value) or {}
        if not isinstance(found, dict):
            raise forms.ValidationError("Give names and values in braces.")
        return found


_FIELDS: dict[Kind, type[forms.Field]] = {
    Kind.WHOLE: forms.IntegerField,
    Kind.NUMBER: forms.FloatField,
    Kind.FLAG: forms.BooleanField,
    Kind.CHOICE: forms.ChoiceField,
    Kind.TEXTS: TextsField,
    Kind.MOMENT: forms.DateTimeField,
    Kind.NOTES: NotesField,
}


@cache
def form_of(action: Action) -> type[ReasonForm]:
    """The form of an operation: the reason, which is always asked for, then its fields in their order."""
    made = {one.name: form_field(one) for one in action.fields}
    return type("VerbForm", (ReasonForm,), {**made, "field_order": ("reason", *made)})


def form_field(one: Field) -> forms.Field:
    """The form's field of a declared one."""
    reported = (
        f"{one.help[0].upper()}{one.help[1:]}." if one.help and one.kind is not Kind.CHOICE else ""
    )  # choices tell themselves
    named: dict[str, Any] = {"required": one.required or one.default is not None, "help_text": reported}
    if one.rows > 1:
        named["widget"] = forms.Textarea(attrs={"rows": one.rows, "cols": 80})
    match one.kind:
        case Kind.CHOICE:
            named["choices"] = [*([] if named["required"] else [("", one.blank_label)]), *one.choices]
        case Kind.WHOLE | Kind.NUMBER:
            named |= {"min_value": one.least, "max_value": one.most}
        case Kind.TEXT | Kind.NAME:
            named |= {"max_length": one.length, "validators": [name_validator] if one.kind is Kind.NAME else []}
    return _FIELDS.get(one.kind, forms.CharField)(**named)
