"""Path converters: names as they may stand in an address. What does not match is no such thing (404). Imported for its effect."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.urls import register_converter
from django.urls.converters import StringConverter


class NameConverter(StringConverter):
    """Names of requests and sites: letters, digits, ``.``, ``_`` and ``-`` (intake's rule for request names)."""

    regex = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}"


class AnyNameConverter(NameConverter):
    """Names that are stored already, of any form that can be: groups had no rule once. For pages alone."""

    regex = r"[^\0]+"


class CampaignConverter(NameConverter):
    """Names of campaigns: they may begin with ``_`` (intake's rule for them)."""

    regex = "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"


class ScheddConverter(NameConverter):
    """Names of schedds: a host, or a name before it (``schedd2@host``)."""

    regex = "[A-Za-z0-9][A-Za-z0-9._@-]{0,254}"


class PoolConverter(NameConverter):
    """Names of pools, which may be their collectors' addresses."""

    regex = "[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}"


name_validator = RegexValidator(rf"^{NameConverter.regex}\Z", "Letters, digits, '.', '_' and '-', a letter or digit first.")
register_converter(NameConverter, "name")
register_converter(AnyNameConverter, "any-name")
register_converter(CampaignConverter, "campaign")
register_converter(PoolConverter, "pool")
register_converter(ScheddConverter, "schedd")
