"""One's own account in the browser: signing in, its sessions, how to end them, and a new password."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.views.decorators.http import require_POST

from wms2.audit import audit
from wms2.web.login_throttle import address_of, password_right, password_tried, sign_in_waits
from wms2.web.sessions import ADDRESS, BEGAN, SEEN, sessions_end, sessions_of


@require_POST
@login_required
def others_end(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user but the one that the request came in."""
    user: Any = request.user  # signed in
    name = user.get_username()
    number = sessions_end(user, but=request.session.session_key)
    audit(actor=name, action="sessions_end", target_type="user", target=name, sessions=number)
    messages.success(request, f"{number} other sessions have ended.")
    return redirect("account")


class SignInView(LoginView):
    """Django's sign-in; who is signed in already is led on."""

    template_name = "login.html"
    redirect_authenticated_user = True

    def get_redirect_url(self, *args: Any, **kwargs: Any) -> str:
        """Where it leads to; never here again."""
        found: str = super().get_redirect_url(*args, **kwargs)
        return "" if found.partition("?")[0] == self.request.path else found


class PasswordView(PasswordChangeView):
    """A new password, for whom the old one is known. All other sessions end with it."""

    template_name = "password.html"
    success_url = reverse_lazy("account")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Guesses of the old password are counted as those at the sign-in are, and wait."""
        if seconds := password_tried(*self._who()):
            return sign_in_waits(request, seconds)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        """With the right old password it was no guess."""
        if "old_password" not in form.errors:
            password_right(*self._who())
        return super().form_invalid(form)

    def form_valid(self, form: Any) -> HttpResponse:
        """Changed; audited without it."""
        name = self.request.user.get_username()
        password_right(*self._who())
        response = super().form_valid(form)
        audit(actor=name, action="password_change", target_type="user", target=name)
        messages.success(self.request, "The password is changed; other sessions have ended.")
        return response

    def _who(self) -> tuple[str, str]:
        return self.request.user.get_username(), address_of(self.request)


def sessions_shown(request: HttpRequest) -> list[dict[str, Any]]:
    """The user's sessions: whether it is this one, when it began and was last used, and from where."""
    user: Any = request.user  # signed in
    found = [(row.session_key == request.session.session_key, row.get_decoded()) for row in sessions_of(user)]
    return [
        {"own": is_own, "began": _moment(data.get(BEGAN)), "seen": _moment(data.get(SEEN)), "address": data.get(ADDRESS, "")}
        for is_own, data in found
    ]


def _moment(seconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
