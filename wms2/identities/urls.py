"""Addresses of the page of one's own account."""

from __future__ import annotations

from django.urls import path

from wms2.identities import account, browser_sessions

urlpatterns = [
    path("", account.account, name="account"),
    path("tokens/", account.token_new, name="account-token-make"),
    path("tokens/<slug:prefix>/revoke/", account.token_end, name="account-token-revoke"),
    path("old-key/end/", account.old_key, name="account-old-key-end"),
    path("sessions/end/", browser_sessions.others_end, name="account-sessions-end"),
    path("password/", browser_sessions.PasswordView.as_view(), name="password"),
]
