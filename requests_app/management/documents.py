"""What the commands over request documents share: reading a JSON file, and how a refusal is reported. Owns no rule about
requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import OutputWrapper

from wms2.api.parsers import unique_keys
from wms2.errors import DocumentRefused, Problem

#: Exit code of a command whose document was refused; nothing was stored.
REFUSED = 2


def read_json(option: str, path: str) -> Any:
    """The JSON value in a file.

    Args:
        option: what the command calls the file, for messages.

    Raises:
        DocumentRefused: the file cannot be read, is no UTF-8, no JSON, nested too deep, or names a key twice in one object.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"), object_pairs_hook=unique_keys)
    except OSError as error:
        problem = f"cannot be read: {path}: {error.strerror or error}"
    except UnicodeDecodeError as error:
        problem = f"is no UTF-8 text: {path}: byte {error.start}"
    except RecursionError:
        problem = f"is nested too deep: {path}"
    except ValueError as error:
        problem = f"is no JSON document: {path}: {error}"
    raise DocumentRefused([Problem(option, problem)])


@contextmanager
def refusal_reported(*, as_json: bool, out: OutputWrapper, err: OutputWrapper) -> Iterator[None]:
    """Turns a :class:`DocumentRefused` into its text and exit code 2: ``{"problems": [...]}`` on ``out``, or lines on ``err``."""
    try:
        yield
    except DocumentRefused as refused:
        if as_json:
            out.write(json.dumps({"problems": [asdict(problem) for problem in refused.problems]}, indent=2))
        else:
            err.write(f"Refused, {len(refused.problems)} problem(s); nothing was stored:")
            for problem in refused.problems:
                err.write(f"  {problem.field}: {problem.problem}")
        raise SystemExit(REFUSED) from refused
