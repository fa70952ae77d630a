"""Admin of dags_app: every row to look at; its buttons are the operations of ``dags_app.actions``."""

from dags_app.admin import dags, failure_rules
