"""App config of requests_app: what was asked and where it stands."""

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, workflows, the life cycle."""

    name = "requests_app"
    verbose_name = "Requests"

    def ready(self) -> None:
        """Give the lower layers the service's level."""
        from requests_app.service_level import read
        from wms2.runtime import levels

        levels.use(read)
