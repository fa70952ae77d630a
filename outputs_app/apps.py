"""App config of outputs_app: what came out."""

from django.apps import AppConfig


class OutputsAppConfig(AppConfig):
    """Blocks, files, effects."""

    name = "outputs_app"
    verbose_name = "Outputs"
