"""Flower's configuration file, which it reads as Python: its metrics ask for the login, as its pages and its API do.

Flower has no option for that: with a login set everything asks for it but ``/metrics``, which names workers and tasks, and
``/healthcheck``, which says only "OK".
"""

from flower.views.monitor import Metrics
from tornado.web import authenticated

Metrics.get = authenticated(Metrics.get)
