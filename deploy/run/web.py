"""The web server's shape: gunicorn --config python:deploy.run.web wms2.wsgi:application.

The address comes from --bind or PORT. Loaded once and forked; threads share a process, so that an answer that waits for the
database does not keep others waiting. Its control socket would be one for all servers of a user.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from wms2.conf import WEB_THREADS

bind = f"{os.environ.get('WMS2_BIND', '127.0.0.1')}:{os.environ.get('PORT', '8000')}"
preload_app = True
workers = int(os.environ.get("WMS2_WEB_PROCESSES", "2"))
# readers of the event feed that wait take none of the others'
threads = WEB_THREADS + int(os.environ.get("WMS2_FEED_READERS") or 8)
worker_class = "gthread"
control_socket_disable = True
graceful_timeout = 20


def when_ready(server: Any) -> None:
    """Before the first fork: collections in the workers leave what was loaded alone, so that its pages stay shared."""
    gc.collect()
    gc.freeze()
