"""Flower's configuration file, which it reads as Python: its metrics ask for the login, as its pages and its API do.

Flower has no option for that: with a login set everything asks for it but ``/metrics``, which names workers and tasks, and
``/healthcheck``, which says only "OK".
Without any login everybody could stop workers and revoke tasks: then it does not start.
"""

import os

from flower.views.monitor import Metrics
from tornado.web import authenticated

if not (os.environ.get("FLOWER_BASIC_AUTH") or os.environ.get("FLOWER_AUTH_PROVIDER")):
    raise SystemExit("Flower is not started without a login: set FLOWER_BASIC_AUTH (name:password), or a provider of logins")
Metrics.get = authenticated(Metrics.get)
