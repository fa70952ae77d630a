"""Typed reading of JSON documents with errors that name the file and the field. Owns no document's content."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import codes
from .codes import PayloadError


class Value:
    """A JSON value that knows where it stands (``unit.json: jobs[3].events``), read as one type or refused."""

    def __init__(self, value: Any, where: str) -> None:
        self.raw = value
        self.where = where

    def refuse(self, problem: str) -> PayloadError:
        """An error for this value; raise it."""
        return PayloadError(codes.INVALID_DOCUMENT, f"{self.where}: {problem}")

    def _typed(self, kind: type | tuple[type, ...], name: str) -> Any:
        if not isinstance(self.raw, kind) or (kind is not bool and isinstance(self.raw, bool)):
            raise self.refuse(f"expected {name}, found {json.dumps(self.raw)[:80]}")
        return self.raw

    def text(self) -> str:
        """The value as a string."""
        return str(self._typed(str, "a string"))

    def integer(self) -> int:
        """The value as a whole number."""
        return int(self._typed(int, "a whole number"))

    def number(self) -> float:
        """The value as a number; NaN and infinity are refused."""
        try:
            found = float(self._typed((int, float), "a number"))
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise self.refuse(f"expected a number, found {found}")
        return found

    def boolean(self) -> bool:
        """The value as true or false."""
        return bool(self._typed(bool, "true or false"))

    def items(self) -> Iterator[Value]:
        """The elements of a list."""
        for index, item in enumerate(self._typed(list, "a list")):
            yield Value(item, f"{self.where}[{index}]")

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(item.text() for item in self.items())

    def entries(self) -> Iterator[tuple[str, Value]]:
        """The fields of an object."""
        for name, item in self._typed(dict, "an object").items():
            yield name, Value(item, f"{self.where}.{name}")

    def __getitem__(self, name: str) -> Value:
        fields = self._typed(dict, "an object")
        if name not in fields:
            raise self.refuse(f"the field {name!r} is missing")
        return Value(fields[name], f"{self.where}.{name}")

    def get(self, name: str) -> Value | None:
        """A field, or None when it is absent or null."""
        if self._typed(dict, "an object").get(name) is None:
            return None
        return self[name]


def load_document(path: Path, *schemas: str) -> Value:
    """Read a JSON object whose ``schema`` is one of ``<name>/<major>``: same name and major accepted, anything else refused.

    Unknown fields are the reader's to ignore (docs/design/control.md, Versions of files).
    """
    try:
        with path.open(encoding="utf-8") as stream:
            document = Value(json.load(stream), path.name)
    except FileNotFoundError:  # whole paths would be taken for what a storage says, by rules that search messages
        raise PayloadError(codes.INVALID_DOCUMENT, f"{path.name}: no such file in {path.parent.name}") from None
    except OSError as error:
        raise PayloadError(codes.INVALID_DOCUMENT, f"{path.name}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PayloadError(codes.INVALID_DOCUMENT, f"{path.name}: cannot be read as JSON: {error}") from error
    check_schema(document, *schemas)
    return document


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a file with one to a line; a line that is damaged, as a crash cuts it off, is left out."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def check_schema(document: Value, *schemas: str) -> None:
    """Refuse a document whose ``schema`` field is not one of ``schemas`` (minor versions after a dot are accepted)."""
    found = document["schema"].text()
    if not any(found == schema or found.startswith(schema + ".") for schema in schemas):
        raise document["schema"].refuse(f"expected {' or '.join(schemas)}, found {found}")
