"""The simulated services as a process of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.support.servers import Program

WRITER = "/dbs/prod/global/DBSWriter"
READER = "/dbs/prod/global/DBSReader"


class Simulators(Program):
    """ReqMgr2, ConfigCache, DBS and CRIC under one URL."""

    def __init__(self, state_dir: Path, *options: str) -> None:
        super().__init__("deploy.simulators", "serve", "--state", str(state_dir), "--port", "0", *options)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One plain HTTP call, for setting the scene."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": content_type})
        with urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text.strip() else None
