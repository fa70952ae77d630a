"""Many cases of one shape in one test: every case runs, and all that fail are listed in one message."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.db import transaction

Test = Callable[..., None]
#: Of a case as a message shows it.
MOST_CHARACTERS = 200


def in_one_test(names: str, cases: Iterable[Any], *, rows: bool = False) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize`` with the same arguments, but one test; with ``rows`` each case runs in a savepoint of its
    own, which is rolled back, so that no case sees another's rows.
    """
    words, known = [name.strip() for name in names.split(",")], list(cases)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            assert known, "there is no case"
            failed = [text for case in known if (text := _failure(test, fixtures, words, case, rows=rows))]
            assert not failed, f"{len(failed)} of {len(known)} cases failed\n" + "\n".join(failed)

        others = [parameter for name, parameter in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _failure(test: Test, fixtures: dict[str, Any], words: list[str], case: Any, *, rows: bool) -> str:
    values = dict(zip(words, case if len(words) > 1 else (case,), strict=True))
    try:
        if not rows:
            test(**fixtures, **values)
            return ""
        with transaction.atomic():
            test(**fixtures, **values)
            transaction.set_rollback(True)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  (the message lists it)
        return f"{str(case)[:MOST_CHARACTERS]}: {type(error).__name__}: {error}"
    return ""
