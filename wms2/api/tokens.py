"""Tokens over REST: after many wrong ones, an address has to wait. A right one never has."""

from __future__ import annotations

import math
from typing import Any

from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from wms2.api.problems import Problem, ProblemError
from wms2.web.login_throttle import address_of, token_wrong


class ThrottledTokenAuthentication(TokenAuthentication):
    """DRF's, with the brake."""

    def authenticate(self, request: Request) -> Any:
        """User and token; None without the header. Raises AuthenticationFailed: no user has it; ProblemError: 429."""
        try:
            return super().authenticate(request)
        except AuthenticationFailed as error:
            seconds = math.ceil(token_wrong(address_of(request._request)))
            if not seconds:
                raise
            detail = f"too many wrong tokens from this address; try again in {seconds} s"
            problem = Problem(429, "too_many_failures", detail, hint="Check the token; a right one is taken at once.")
            raise ProblemError(problem, {"Retry-After": str(seconds)}) from error
