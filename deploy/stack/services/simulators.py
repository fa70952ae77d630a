"""The simulators of ReqMgr2 (with ConfigCache), DBS and CRIC: one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.stack.paths import Layout
from deploy.stack.services import http
from deploy.stack.services.base import Service
from deploy.stack.steps import run_logged


def state(kind_directory: Path) -> Path:
    return kind_directory / "simulators"


def service(layout: Layout, kind_directory: Path, port: int, environment: Mapping[str, str]) -> Service:
    base = f"http://127.0.0.1:{port}"

    def problem() -> str | None:
        return http.problem(f"{base}/dbs/prod/global/DBSReader/serverinfo") or http.problem(
            f"{base}/reqmgr2/data/info", {"Accept": "application/json"}
        )

    options = ("serve", "--state", state(kind_directory), "--host", "127.0.0.1", "--port", str(port))
    return Service(
        name="simulators",
        argv=(layout.python, "-m", "deploy.simulators", *options),
        log=kind_directory / "logs/simulators.log",
        environment=environment,
        cwd=layout.source,
        prepare=lambda: state(kind_directory).mkdir(parents=True, exist_ok=True),
        problem=problem,
    )


def seed(layout: Layout, kind_directory: Path, port: int, environment: Mapping[str, str], file: Path) -> None:
    """Put documents and rows into the running simulators; repeatable. Sizes it leaves out are those of the files on storage."""
    options = ("--url", f"http://127.0.0.1:{port}", "--file", str(file), "--storage-root", str(kind_directory / "storage"))
    argv = [str(layout.python), "-m", "deploy.simulators", "seed", *options]
    log = kind_directory / "logs/simulators-seed.log"
    run_logged(argv, log=log, environment=environment, cwd=layout.source, seconds=120)
