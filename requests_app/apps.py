"""App config of requests_app: what was asked and where it stands."""

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, workflows, the life cycle."""

    name = "requests_app"
    verbose_name = "Requests"
