"""The Celery app. Beat's schedule stands in code; Celery carries hints, PostgreSQL rows are the truth."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")

app = Celery("wms2")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
