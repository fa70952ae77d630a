"""JobExtraMatchRequirements: a ClassAd expression of the requester's. Owns what may stand in a submit file.

It is put in brackets behind WMS2's own requirements, so it must be one whole expression that no submit file expands or cuts.
"""

from __future__ import annotations

import re

import classad2

from requests_app.intake.values import Unreadable, shown, text

_MAX_LENGTH = 2000
#: Printable ASCII without what a submit file or a shell reads in its own way: backquote, backslash, braces, ``;``, ``#``.
_ALLOWED = re.compile(r"[A-Za-z0-9_ .,()\[\]&|=!<>?:*+/^$\"-]*", re.ASCII)
_MACRO = re.compile(r"\$[A-Za-z0-9_$]*\(")


def requirements(value: object) -> str:
    """A checked expression.

    Raises:
        Unreadable: a character, a macro or a bracket that could change another part of the submit file.
    """
    expression = text(_MAX_LENGTH)(value).strip()
    if not _ALLOWED.fullmatch(expression) or _MACRO.search(expression) or "$$" in expression:
        raise Unreadable(f"holds characters that cannot stand in a submit file: {shown(expression)}")
    _check_balance(expression)
    try:
        classad2.ExprTree(f"TRUE && ({expression})")  # as it will stand there: a comment would swallow the bracket
    except classad2.ClassAdException as error:
        raise Unreadable(f"is no whole ClassAd expression: {shown(expression)}") from error
    return expression


def _check_balance(expression: str) -> None:
    """Brackets outside quotes close what they open, and quotes end."""
    closing: list[str] = []
    outside = re.sub(r'"[^"]*"', "", expression)
    if '"' in outside:
        raise Unreadable(f"has a quote that does not end: {shown(expression)}")
    for character in outside:
        if character in "([":
            closing.append(")" if character == "(" else "]")
        elif character in ")]" and (not closing or closing.pop() != character):
            closing = ["?"]
            break
    if closing:
        raise Unreadable(f"has brackets that do not match: {shown(expression)}")
