"""Statements that a piece of code has put to the database."""

from __future__ import annotations

from django.test.utils import CaptureQueriesContext


def statements(captured: CaptureQueriesContext) -> list[str]:
    """Without the questions for the time: the clock is asked once a second at most, whoever asks first."""
    return [query["sql"] for query in captured if "clock_timestamp" not in query["sql"]]
