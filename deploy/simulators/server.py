"""Start and stop of the simulators' HTTP server."""

import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from deploy.simulators.app import Application
from deploy.simulators.dbs.service import BulkblocksMode
from deploy.simulators.httpd import SimulatorServer
from deploy.simulators.reqmgr2.others import Habits

STOP_WAIT_SECONDS = 10.0


def serve(state_dir: Path, port: int, bulkblocks_mode: BulkblocksMode, habits: Habits) -> int:
    """Serve until SIGTERM or SIGINT; port 0 takes a free one. Prints the URL once it listens. Returns the exit code."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        application = Application(state_dir, bulkblocks_mode, habits)
        stack.callback(application.close)
        server = SimulatorServer(("127.0.0.1", port), application.handle)
        stack.callback(server.server_close)
        stop_on_signals(server)
        print(f"simulators ready on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever(poll_interval=0.1)
        if not server.wait_idle(STOP_WAIT_SECONDS):
            print("simulators: stopped with requests still in progress", file=sys.stderr)
    return 0


def stop_on_signals(server: SimulatorServer) -> None:
    """SIGTERM and SIGINT end ``serve_forever``."""

    def stop(number: int, frame: FrameType | None) -> None:
        # shutdown() waits for serve_forever(), which runs in the thread the signal interrupts
        threading.Thread(target=server.shutdown, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
