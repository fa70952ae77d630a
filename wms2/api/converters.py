"""Path converters: names as they may stand in an address. What does not match is no such thing (404). Imported for its effect."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.urls import register_converter
from django.urls.converters import StringConverter

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
_NAMES = {
    "name": _NAME,  # of requests and sites: letters, digits, ``.``, ``_`` and ``-`` (intake's rule for request names)
    "any-name": r"[^\0]+",  # those that are stored already, of any form that can be: groups had no rule once. For pages alone
    "campaign": "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}",  # they may begin with ``_`` (intake's rule for them)
    "pool": "[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}",  # their names may be their collectors' addresses
    "schedd": "[A-Za-z0-9][A-Za-z0-9._@-]{0,254}",  # a host, or a name before it (``schedd2@host``)
}
for _kind, _regex in _NAMES.items():
    register_converter(type(f"{_kind}Converter", (StringConverter,), {"regex": _regex}), _kind)
name_validator = RegexValidator(rf"^{_NAME}\Z", "Letters, digits, '.', '_' and '-', a letter or digit first.")
