"""Serializers that several apps use: strict input, the reason of an operation, and the problem's form for the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from django.utils.text import Truncator
from rest_framework import serializers

from wms2.api.answers import Url, answer
from wms2.api.converters import name_validator

MAX_REASON = 2000
#: Intake's rule for request names.
MAX_NAME = 150
#: How names of sites begin, and of files and blocks; one rule for all doors.
_SITE, _LFN = re.compile(r"T[0-9]_\w+", re.ASCII), re.compile(r"/\S+")


class StrictSerializer(serializers.Serializer):
    """Input in which an unknown field is an error: a mistyped name must not be a silent no.

    ``elsewhere``: fields of another form of the same input, which are named among those that are known.
    """

    elsewhere: ClassVar[tuple[str, ...]] = ()

    def to_internal_value(self, data: Any) -> Any:
        """As DRF does, after looking for strangers."""
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            strangers = sorted(str(name) for name in data.keys() - known)
            if strangers:
                listed = ", ".join(sorted({*known, *self.elsewhere}))
                raise serializers.ValidationError({name: [f"unknown field; known are: {listed}"] for name in strangers})
        return super().to_internal_value(data)


class TextField(serializers.CharField):
    """Text that came as text: a number is not taken for one."""

    def to_internal_value(self, data: Any) -> str:
        """As it is, without spaces around it."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class WordField(serializers.ChoiceField):
    """One of a few words; the answer to any other names them, and does not repeat a whole document that was sent in its place."""

    default_error_messages: ClassVar = {"invalid_choice": "'{input}' is not one of {words}"}

    def fail(self, key: str, **values: Any) -> NoReturn:
        """As DRF does."""
        if "input" in values:
            values["input"] = Truncator(values["input"]).chars(80)
        super().fail(key, words=", ".join(map(str, self.choices)), **values)
        raise AssertionError(key)


class ShareField(serializers.FloatField):
    """A share of something: true is not taken for 1, which would mean everything."""

    def to_internal_value(self, data: Any) -> float:
        """As DRF does."""
        if isinstance(data, bool):
            self.fail("invalid")
        return float(super().to_internal_value(data))


class SiteField(TextField):
    """A site's name. Whether there is such a site the services say, which know them."""

    default_error_messages: ClassVar = {"no_site": "'{input}' is not the name of a CMS site, which are like T2_CH_CERN"}

    def to_internal_value(self, data: Any) -> str:
        """Its form alone is looked at."""
        text = super().to_internal_value(data)
        if _SITE.fullmatch(text) is None:
            self.fail("no_site", input=text[:80])
        return text


class LfnField(TextField):
    """A file's or a block's name as the catalogues have it."""

    default_error_messages: ClassVar = {"no_lfn": "'{input}' is not a name that begins with '/' and has no spaces in it"}

    def to_internal_value(self, data: Any) -> str:
        """Its form alone is looked at."""
        text = super().to_internal_value(data)
        if _LFN.fullmatch(text) is None:
            self.fail("no_lfn", input=text[:80])
        return text


class NameField(TextField):
    """A request's name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_NAME, validators=[name_validator], **kwargs)


class ReasonSerializer(StrictSerializer):
    """What every operation asks for."""

    reason = TextField(max_length=MAX_REASON, help_text="why; kept with the transition and in the audit")


FieldProblemSerializer = answer("FieldProblem", {"field": str, "problem": str}, "One wrong field.")
ExistingSerializer = answer("Existing", {"request_name": str, "status": str, "url": Url}, "The request that is there already.")
ProblemSerializer = answer(
    "Problem",
    {
        "type": str, "title": str, "status": int, "detail": str, "code": str, "field": str | None, "hint": str | None,
    },
    "application/problem+json; for the schema.",
    type="urn:wms2:problem:<code>",
    code="stable; docs/api.md lists them",
    problems=FieldProblemSerializer(many=True, required=False),
    existing=ExistingSerializer(required=False, help_text="with request_exists: the request that has the name"),
)  # fmt: skip
