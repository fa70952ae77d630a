"""The simulators of ReqMgr2 (with ConfigCache), DBS and CRIC: one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deploy.run import healthy
from deploy.stack.environment import SMALL_ROUNDS
from deploy.stack.errors import StackError
from deploy.stack.services.base import Place, Service

#: Agents leave some minutes for taking what is staged; what is aborted or forced moves on soon.
OTHERS = ("--agents-seconds", "300", "--settle-seconds", "5")
#: In the demo what is completed goes on to its archive.
ARCHIVE = ("--archive-seconds", "0")


def service(place: Place, port: int) -> Service:
    base, state = f"http://127.0.0.1:{port}", place.directory / "simulators"

    def problem() -> str | None:
        return healthy.problem(f"{base}/dbs/prod/global/DBSReader/healthz") or healthy.problem(
            f"{base}/reqmgr2/data/info", {"Accept": "application/json"}
        )

    others = (*OTHERS, *(ARCHIVE if place.directory.name in SMALL_ROUNDS else ()))
    options = ("serve", "--state", state, "--port", str(port), *others)
    service = place.service("simulators", place.layout.python, "-m", "deploy.simulators", *options, problem=problem)
    return replace(service, prepare=lambda: state.mkdir(parents=True, exist_ok=True))


def seed(place: Place, port: int, file: Path) -> None:
    """Put documents and rows into the running simulators; repeatable. Sizes it leaves out are those of the files on storage."""
    options = ("--url", f"http://127.0.0.1:{port}", "--file", file, "--storage-root", place.directory / "storage")
    place.python("simulators-seed", "-m", "deploy.simulators", "seed", *options, seconds=120)


def submit(place: Place, port: int, file: Path) -> str:
    """Have a request staged in ReqMgr2, unless an earlier run did; its name."""
    words = ("submit", "--url", f"http://127.0.0.1:{port}", "--file", file, "--once")
    code, said = place.ask(f"simulators-submit-{file.stem}", "-m", "deploy.simulators", *words)
    if code != 0:
        raise StackError(f"{file} was refused by ReqMgr2; see {place.log(f'simulators-submit-{file.stem}')}")
    return said.strip()
