"""Signing in with a password, wherever a form takes one: braked before the password is judged, and then answered 429."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from wms2.brake import address_of, password_right, password_tried

_WAITS = "_wms2_sign_in_waits_seconds"


class BrakeBackend:
    """First of the authentication backends: knows nobody, and ends the attempt of whoever has to wait."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, password: str | None = None) -> None:
        """Nobody; the next backend judges.

        Raises:
            PermissionDenied: the name or the address has to wait; Django asks no other backend then.
        """
        if request is None or username is None:
            return
        seconds = password_tried(username, address_of(request))
        if seconds:
            setattr(request, _WAITS, seconds)
            raise PermissionDenied


class SignInBrakeMiddleware:
    """A form whose attempt was not judged must not say that the password is wrong."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The form's answer, or how long to wait."""
        response = self.get_response(request)
        seconds = getattr(request, _WAITS, 0.0)
        if not seconds:
            return response
        whole = math.ceil(seconds)
        told = render(request, "429.html", {"seconds": whole}, status=429)
        told["Retry-After"] = str(whole)
        return told


def forget_failures(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    """Receiver of ``user_logged_in``."""
    if request is not None:
        password_right(user.get_username(), address_of(request))


user_logged_in.connect(forget_failures, dispatch_uid="wms2.sign_in")
