"""Django settings of the provider; everything is below the directory that ``SIMULATED_SSO_STATE`` names."""

from __future__ import annotations

import os
from pathlib import Path

STATE = Path(os.environ["SIMULATED_SSO_STATE"])
SECRET_KEY = (STATE / "secret_key").read_text(encoding="utf-8")
IDP_OIDC_PRIVATE_KEY = (STATE / "signing_key.pem").read_text(encoding="utf-8")
IDP_OIDC_ADAPTER = "deploy.simulators.sso.adapter.Adapter"
_SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": STATE / "sso.sqlite3"}
DATABASES = {"default": {**_SQLITE, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}}
# All passwords and secrets here are random and long: a slow hash would only cost each call of a test.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "allauth",
    "allauth.account",
    "allauth.idp.oidc",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False
ROOT_URLCONF = "deploy.simulators.sso.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SESSION_COOKIE_NAME = "sso_sessionid"  # cookies know no ports: WMS2's on the same host have other names
CSRF_COOKIE_NAME = "sso_csrftoken"
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/accounts/logout/"
USE_TZ = True
USE_I18N = False
