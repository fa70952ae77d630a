"""WSGI entry point for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application
from django.db import connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")
_django = get_wsgi_application()
#: An answer that takes one statement longer than this keeps a thread from everybody else; 503 then, and nothing was done.
STATEMENT_SECONDS = 30
connections.settings["default"]["OPTIONS"]["options"] += f" -c statement_timeout={STATEMENT_SECONDS}s"

from requests_app.installation import ForeignDatabase  # noqa: E402  (models are there only now)
from requests_app.monitoring.instance_gate import InstanceGate  # noqa: E402

application = InstanceGate(_django)
if isinstance(_why := application.refusal(), ForeignDatabase):
    raise SystemExit(f"not started: {_why}")
