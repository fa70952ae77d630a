"""The command line of ``wms2_payload.pyz``. Owns argument parsing and where errors of each command go.

On worker nodes: job, merge, cleanup, site (the working directory is HTCondor's scratch directory). As DAGMan scripts: reelect
(working directory: the DAG's), elect, gather, collect, post (the unit's).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from .contract import scripts
from .contract.codes import PayloadError, exit_status
from .contract.layout import LANDING, MERGE

#: What each command is, and where. Loaded when it is run: DAGMan starts a script per node and attempt, each needs only its own.
_ON_WORKER = {
    "job": ("run a processing node", "run.job", "run_job"),
    "merge": ("merge a unit", "merge.job", "run_merge_job"),
    "cleanup": ("remove a unit's unmerged files", "merge.cleanup", "run_cleanup"),
    "site": ("do the task of a job at a site", "run.site_job", "run_site_job"),
}
_SCRIPTS = {
    "elect": ("POST of landing: pin the unit to a site", "post.election", "elect"),
    "reelect": ("PRE of a unit: leave a site that is to be avoided", "post.election", "reelect"),
    "gather": ("PRE of a later task's node: list what its upstream nodes left", "run.gathering", "gather"),
    "collect": ("PRE of merge: gather the nodes' reports", "merge.collecting", "collect"),
    "post": ("POST of a processing or merge node", "post.post", "run_post"),
}
#: What DAGMan passes to each script, in order.
_WORDS: dict[str, dict[str, type]] = {
    "elect": {"nodes_log": str, "job_id": str, "return_value": int},
    "reelect": {"unit": str, "retry": int},
    "gather": {"node": str},
    "collect": {},
    "post": {"node": str, "return_value": int, "retry": int, "max_retries": int, "job_id": str},
}
#: Scripts that fail only because something else has, which is told.
_JUDGED = {"reelect"}
#: Nodes of the scripts that are not given one.
_NODES = {"elect": LANDING, "collect": MERGE}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its process status."""
    options = vars(_parser().parse_args(arguments))
    command, here = options.pop("command"), Path.cwd()
    if command in _ON_WORKER:
        return _worker(command, here, options)
    place = here / options["unit"] if command == "reelect" else here
    sys.excepthook = _logging_hook(place, command)
    try:
        return _load(command)(here, **options)
    except PayloadError as error:
        scripts.log(place, f"{command}: {error.message}")
        node = _NODES.get(command) or str(options.get("node", ""))
        if command not in _JUDGED and node:
            import_module(".post.script_failures", __package__).tell_script(place, command, node, error)
        return 1


def _worker(command: str, here: Path, options: dict[str, Any]) -> int:
    try:
        return _load(command)(here, **options)
    except PayloadError as error:  # before there was anything to report on
        print(f"wms2_payload {command}: {error.message}", file=sys.stderr)
        return exit_status(error.code)


def _load(command: str) -> Callable[..., int]:
    _, module, name = (_ON_WORKER | _SCRIPTS)[command]
    function: Callable[..., int] = getattr(import_module(f".{module}", __package__), name)
    return function


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wms2_payload.pyz", description="What WMS2 runs on worker nodes and in DAGMan's scripts"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (text, *_) in _ON_WORKER.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--node", required=True)
        command.add_argument("--attempt", type=int, required=True)
    for name, (text, *_) in _SCRIPTS.items():
        # DAGMan passes negative numbers ($RETURN -1001, $JOBID -1.-1 when no job was submitted): "-" begins no option here.
        command = commands.add_parser(name, help=text, prefix_chars="+", add_help=False)
        for word, kind in _WORDS[name].items():
            command.add_argument(word, type=kind)
    return parser


def _logging_hook(place: Path, command: str) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """An excepthook that keeps the traceback of a defect in the scripts' log, which is all that remains of a script."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        scripts.log(place, f"{command}: " + "".join(traceback.format_exception(kind, error, trace)).rstrip())
        sys.__excepthook__(kind, error, trace)

    return hook
