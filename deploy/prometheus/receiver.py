"""What receives Alertmanager's notifications in the demo: ``python -m deploy.prometheus.receiver --port P --file FILE``

Each notification is a line of the file, as Alertmanager sent it. ``GET /`` shows the last ones, newest first.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from deploy.simulators.httpd import Request, Response, SimulatorServer, text_response
from deploy.simulators.server import stop_on_signals

SHOWN = 100


class Receiver:
    """Notifications in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writing = threading.Lock()

    def handle(self, request: Request) -> Response:
        """Take a notification, or show what was taken."""
        if request.method == "POST":
            return self._take(request.plain_body())
        if request.method in ("GET", "HEAD"):
            return text_response("".join(map(_shown, reversed(self._last()))) or "No alert has been received.\n")
        return text_response("POST a notification, or GET those that came\n", status=405)

    def _take(self, body: bytes) -> Response:
        try:
            line = json.dumps(json.loads(body))
        except ValueError as error:
            return text_response(f"this is not JSON: {error}\n", status=400)
        with self._writing, self._file.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        return text_response("taken\n")

    def _last(self) -> list[str]:
        with self._writing:
            return self._file.read_text(encoding="utf-8").splitlines()[-SHOWN:] if self._file.exists() else []


def _shown(line: str) -> str:
    """A line for each alert of a notification."""
    alerts = json.loads(line).get("alerts", [])
    return "".join(
        f"{alert['endsAt'] if alert['status'] == 'resolved' else alert['startsAt']}  {alert['status']:<8}  "
        f"{alert['labels'].get('alertname', '')}  {alert['annotations'].get('summary', '')}\n"
        for alert in alerts
    )


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    server = SimulatorServer(("127.0.0.1", options.port), Receiver(options.file).handle)
    stop_on_signals(server)
    print(f"receiver ready on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
