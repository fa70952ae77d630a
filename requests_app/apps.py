"""App config of requests_app: what was asked and where it stands."""

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, workflows, the life cycle."""

    name = "requests_app"
    verbose_name = "Requests"

    def ready(self) -> None:
        """Models can be imported by now."""
        from requests_app.audit import audit_braked_sign_in
        from wms2.brake import sign_in_braked

        sign_in_braked.connect(audit_braked_sign_in, dispatch_uid="requests_app.audit")
