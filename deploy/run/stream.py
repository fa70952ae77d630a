"""The shape of the process ``stream``: gunicorn --config python:deploy.run.stream wms2.stream.application:from_environment().

One process of an event loop, whose readers share one session of the database. The address comes from --bind or STREAM_PORT.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from typing import Any

from wms2.metrics.files import count_in_files

count_in_files()  # before the application makes metrics
bind = f"{os.environ.get('WMS2_BIND', '127.0.0.1')}:{os.environ.get('STREAM_PORT') or '8001'}"
workers = 1
worker_class = "asgi"
asgi_lifespan = "on"
control_socket_disable = True
graceful_timeout = 10
#: A connection whose other end takes nothing for so long is broken off, whatever waits in it.
_TAKEN_MS = 60_000


def post_worker_init(worker: Any) -> None:
    """Asked to end, the streams end first: gunicorn would wait for them."""

    def end() -> None:
        worker.asgi.stop()
        worker.handle_exit_signal()

    worker.loop.add_signal_handler(signal.SIGTERM, end)
    gc.collect()
    gc.freeze()  # collections, made after every so many readers, look at what these leave behind alone
    for listener in worker.sockets:  # what it accepts has the option from it
        listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TAKEN_MS)
