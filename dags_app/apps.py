"""App config of dags_app: how work runs."""

from django.apps import AppConfig


class DagsAppConfig(AppConfig):
    """DAGs, work units, claims."""

    name = "dags_app"
    verbose_name = "DAGs"
