"""Django settings. Everything that differs between installations comes from ``WMS2_*`` variables; see ``wms2/conf``.

A missing variable stops the start with its name. Nothing here contacts a service.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from kombu import Queue

from wms2.metrics.files import count_in_files
from wms2.runtime.periodic import QUEUES
from wms2.settings.database import database_from_url
from wms2.settings.logs import logging_config
from wms2.settings.rest import REST_FRAMEWORK as REST_FRAMEWORK
from wms2.settings.rest import SPECTACULAR_SETTINGS as SPECTACULAR_SETTINGS


def _required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set. See docs/configuration.md; for the demo's values: make shell-env")
    return value


count_in_files()  # the apps that are imported after the settings make metrics
BASE_DIR = Path(__file__).resolve().parents[2]
ENVIRONMENT = _required("WMS2_ENVIRONMENT")
DEBUG = os.environ.get("WMS2_DEBUG", "0") == "1"
SECRET_KEY = _required("WMS2_SECRET_KEY")
ALLOWED_HOSTS = [h for h in os.environ.get("WMS2_ALLOWED_HOSTS", "127.0.0.1,localhost").split(",") if h]
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("WMS2_CSRF_TRUSTED_ORIGINS", "").split(",") if o]

INSTALLED_APPS = [
    "wms2.apps.Wms2AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "rest_framework.authtoken",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_prometheus",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "wms2.apps.Wms2Config",
    "sites_app",
    "dags_app",
    "outputs_app",
    "requests_app",
]

MIDDLEWARE = [
    "wms2.web.csp.ContentSecurityPolicyMiddleware",
    "wms2.web.request_log.RequestLogMiddleware",
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "wms2.identities.front_end.FrontEndMiddleware",
    "wms2.identities.sso_sessions.SsoSessionMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "wms2.identities.denials.DenialsMiddleware",
    "wms2.web.sessions.SessionActivityMiddleware",
    "wms2.web.login_throttle.LoginThrottleMiddleware",
    "wms2.web.shedding.SheddingMiddleware",
    "wms2.api.rate_limits.PageRateMiddleware",
    "wms2.api.tokens.OldKeyMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "wms2.urls"
WSGI_APPLICATION = "wms2.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"wms2_pages": "wms2.web.template_tags"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {"default": database_from_url(_required("WMS2_DATABASE_URL"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = [
    "wms2.web.login_throttle.LoginThrottleBackend",
    "wms2.identities.service_accounts.NoPasswordBackend",
    "django.contrib.auth.backends.ModelBackend",
]
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator", "OPTIONS": {"min_length": 15}},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": "wms2.web.passwords.ContextWordsValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"

# --- single sign-on: django-allauth speaks OpenID Connect; issuer and client are WMS2_SSO_* (wms2.identities.sso)
ACCOUNT_ADAPTER = "wms2.identities.sso.LocalAccounts"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False  # sign-ins are limited by wms2.web.login_throttle (docs/adr/0033)
SOCIALACCOUNT_ADAPTER = "wms2.identities.sso.SsoAccounts"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5  # seconds of silence

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = "wms2.formats"  # of dates in the admin
USE_TZ = True
STATIC_URL = "static/"
STATIC_ROOT = Path(os.environ.get("WMS2_STATIC_ROOT") or BASE_DIR / ".static")

# --- web security; a loopback demo has no TLS, everything else must
_TLS = ENVIRONMENT == "production"
SECURE_SSL_REDIRECT = _TLS
SESSION_ENGINE = "wms2.web.sessions"
# Browsers take a cookie of such a name only over TLS, from this very host, for all of it: no neighbour's can stand for it.
SESSION_COOKIE_NAME = "__Host-wms2-session" if _TLS else "sessionid"
CSRF_COOKIE_NAME = "__Host-wms2-csrf" if _TLS else "csrftoken"
SESSION_COOKIE_SECURE = _TLS
SESSION_COOKIE_SAMESITE = "Lax"  # a link from a message leads to the page and not to the sign-in
CSRF_COOKIE_SECURE = _TLS
CSRF_COOKIE_HTTPONLY = True  # forms and the REST page carry the token themselves
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if _TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _TLS
SECURE_HSTS_PRELOAD = _TLS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _TLS else None
X_FRAME_OPTIONS = "DENY"

# --- Celery carries hints; rows are the truth (spec 4.2; docs/design/control.md, Truth)
CELERY_BROKER_URL = _required("WMS2_BROKER_URL")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_TASK_SEND_SENT_EVENT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600, "socket_timeout": 10, "socket_connect_timeout": 5}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULER = "wms2.runtime.beat:Scheduler"
CELERY_TIMEZONE = "UTC"
CELERY_TASK_QUEUES = tuple(Queue(name) for name in QUEUES)  # type: ignore[no-untyped-call]

LOGGING = logging_config(os.environ.get("WMS2_LOG_LEVEL", "INFO"), json_lines=os.environ.get("WMS2_LOG_FORMAT", "json") == "json")
