"""The JSON parser: what cannot be stored or is ambiguous is refused here, so that no view has to think of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from wms2.api.problems import Problem, ProblemError

#: Real request documents are below 200 KB; a body is read into memory whole. Below Django's DATA_UPLOAD_MAX_MEMORY_SIZE.
MAX_BODY_BYTES = 2_500_000
MAX_DEPTH = 100


class StrictJsonParser(JSONParser):
    """JSON in UTF-8 with unique keys, finite numbers, and text that PostgreSQL can store."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value of the body. Raises ParseError: it is no such JSON; says what and where; ProblemError: it is too large."""
        data = stream.read(MAX_BODY_BYTES + 1)
        if len(data) > MAX_BODY_BYTES:
            raise ProblemError(Problem(413, "too_large", f"the body is larger than {MAX_BODY_BYTES} bytes"))
        try:
            text = data.decode("utf-8")
        except ValueError as error:
            raise ParseError(f"the body is no JSON document: {error}") from error
        return strict_json(text, "the body")


def strict_json(text: str, called: str) -> Any:
    """The value of a JSON text. Raises ParseError: it is no JSON, or cannot be stored; says what and where."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_constant)
    except RecursionError:
        raise ParseError(f"{called} is nested too deep") from None
    except ValueError as error:
        raise ParseError(f"{called} is no JSON document: {error}") from error
    for problem in _unstorable(value):
        raise ParseError(f"{called} cannot be stored: {problem}")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, of which no key may be given twice: for ``json.loads``. Raises ValueError: naming those that are."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{', '.join(key[:60] for key in twice)}: given twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _unstorable(value: Any) -> Iterator[str]:
    """What PostgreSQL's text and jsonb refuse: NUL, lone surrogates, numbers that are not finite; and bottomless nesting."""
    stack: list[tuple[Any, str, int]] = [(value, "", 0)]
    while stack:
        node, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            yield f"nested deeper than {MAX_DEPTH} levels at {path[:200]}"
        elif isinstance(node, str):
            if "\x00" in node or any("\ud800" <= char <= "\udfff" for char in node):
                yield f"{path[:200] or 'the text'} holds a NUL or half a surrogate pair"
        elif isinstance(node, float) and not math.isfinite(node):
            yield f"{path[:200] or 'the number'} is too large"
        elif isinstance(node, dict):
            stack += [(key, "a key", depth + 1) for key in node]
            stack += [(item, f"{path}.{key}" if path else key, depth + 1) for key, item in node.items()]
        elif isinstance(node, list):
            stack += [(item, f"{path}.{index}", depth + 1) for index, item in enumerate(node)]
