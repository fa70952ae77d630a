"""Errors of the stack."""

from __future__ import annotations


class StackError(RuntimeError):
    """Set-up or start cannot go on. The message says what is wrong, where, and what to do."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived. Not an ``Exception``, so that nothing on the way handles it by accident."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
