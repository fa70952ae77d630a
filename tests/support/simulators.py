"""The simulated services as a process of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.support.places import ROOT

WRITER = "/dbs/prod/global/DBSWriter"
READER = "/dbs/prod/global/DBSReader"


class Simulators:
    """ReqMgr2, ConfigCache, DBS and CRIC under one URL."""

    def __init__(self, state_dir: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deploy.simulators", "serve", "--state", str(state_dir), "--port", "0", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"simulators did not start: {line!r}"
        self.url, self.port = found.group(0), int(found.group(1))

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One plain HTTP call, for setting the scene."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": content_type})
        with urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text.strip() else None

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()
