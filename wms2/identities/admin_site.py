"""The admin's site: opened by a role, not by ``is_staff`` alone."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.shortcuts import redirect

from wms2.identities.grants import enters_admin
from wms2.web.admin_index import sections


class SignInForm(AdminAuthenticationForm):
    """Django's, for those whom the site lets in."""

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        """Raises ValidationError: the account is not active, or has no role that opens the admin."""
        if not enters_admin(user):
            raise ValidationError(
                "This account has no role that opens the admin; the pages of requests are open to it.", code="invalid_login"
            )


class Wms2AdminSite(AdminSite):
    """Lets in operators, admins, requesters and site admins, viewers who were given that role, and Django's staff."""

    login_form = SignInForm

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether its pages are open to this user; rows and operations are judged one by one."""
        return enters_admin(request.user)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The page of one's own account, which counts guesses and audits."""
        return redirect("password")

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Doors by task, and all tables behind a fold."""
        return super().index(request, {**(extra_context or {}), "sections": sections(self.get_app_list(request))})
