"""The command line of ``wms2_payload.pyz``. Owns argument parsing and where errors of each command go.

On worker nodes: job, merge, cleanup, site (the working directory is HTCondor's scratch directory). As DAGMan scripts: reelect
(working directory: the DAG's), elect, gather, collect, post (the unit's).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

from .contract import codes, scripts
from .contract.codes import LAST_WORDS, POST_CALL_AGAIN, PayloadError, exit_status
from .contract.layout import LANDING, MERGE

#: How long a script of DAGMan's may take; they take seconds.
SCRIPT_SECONDS = 900.0
_LOG_SECONDS = 5.0
#: What each command is, the function that runs it, and what it is given, in order. A module is loaded when its command is run:
#: DAGMan starts a script per node and attempt, each needs only its own.
_ON_WORKER = {
    "job": ("run a processing node", "run.job.run_job"),
    "merge": ("merge a unit", "merge.job.run_merge_job"),
    "cleanup": ("remove a unit's unmerged files", "merge.cleanup.run_cleanup"),
    "site": ("do the task of a job at a site", "run.site_job.run_site_job"),
}
_SCRIPTS: dict[str, tuple[str, str, dict[str, type]]] = {
    "elect": (
        "POST of landing: pin the unit to a site",
        "post.election.elect",
        {"nodes_log": str, "job_id": str, "return_value": int},
    ),
    "reelect": ("PRE of a unit: leave a site that is to be avoided", "post.election.reelect", {"unit": str, "retry": int}),
    "gather": ("PRE of a later task's node: list what its upstream nodes left", "run.gathering.gather", {"node": str}),
    "collect": ("PRE of merge: gather the nodes' reports", "merge.collecting.collect", {}),
    "post": (
        "POST of a processing or merge node",
        "post.post.run_post",
        {"node": str, "return_value": int, "retry": int, "max_retries": int, "job_id": str},
    ),
}
#: ``launch.sh`` keeps here what children are to find in LD_LIBRARY_PATH, while this Python runs by libraries of its own.
_LIBRARIES = "_WMS2_LD_LIBRARY_PATH"
#: Nodes of the scripts that are not given one; without a node (``reelect``) a failure only repeats one that was logged.
_NODES = {"elect": LANDING, "collect": MERGE}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its process status."""
    if _LIBRARIES in os.environ:
        os.environ["LD_LIBRARY_PATH"] = os.environ.pop(_LIBRARIES)
    options = vars(_parser().parse_args(arguments))
    command, here = options.pop("command"), Path.cwd()
    module, _, name = (_ON_WORKER[command] if command in _ON_WORKER else _SCRIPTS[command])[1].rpartition(".")
    function: Callable[..., int] = getattr(import_module(f".{module}", __package__), name)
    if command in _ON_WORKER:
        import_module(".run.credentials", __package__).find(here)
        try:
            return function(here, **options)
        except PayloadError as error:  # before there was anything to report on
            print(LAST_WORDS.format(error.code, error.message), file=sys.stderr)
            return exit_status(error.code)
    place = here / options["unit"] if command == "reelect" else here
    try:
        with _ended_in_time(place, command, _node(command, options)):
            return function(here, **options)
    except PayloadError as error:
        scripts.log(place, f"{command}: {error.message}")
        _log_failure(place, command, _node(command, options), error)
        return 1
    except Exception:  # a defect: the scripts' log is all that remains of a script
        scripts.log(place, f"{command}: {traceback.format_exc().rstrip()}")
        raise


def _node(command: str, options: dict[str, Any]) -> str | None:
    return _NODES.get(command) or options.get("node")


def _log_failure(place: Path, command: str, node: str | None, error: PayloadError) -> None:
    if node:
        import_module(".post.script_failures", __package__).log_script(place, command, node, error)


@contextmanager
def _ended_in_time(place: Path, command: str, node: str | None) -> Iterator[None]:
    """Ends a script that hangs, as on a file system that does not answer: DAGMan waits for ever, and runs few at once.

    A POST script is called again later. From a thread: in a system call that hangs no signal is handled.
    """
    status = POST_CALL_AGAIN if command == "post" else 1

    def give_up() -> None:
        error = PayloadError(codes.UNEXPECTED, f"not done after {SCRIPT_SECONDS:g} s, ended with {status}")
        scripts.log(place, f"{command}: {error.message}")
        if status != POST_CALL_AGAIN:
            _log_failure(place, command, node, error)

    timers = [
        Timer(SCRIPT_SECONDS, give_up),
        Timer(SCRIPT_SECONDS + _LOG_SECONDS, os._exit, (status,)),
    ]  # logging may hang as well
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wms2_payload.pyz", description="What WMS2 runs on worker nodes and in DAGMan's scripts"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (text, *_) in _ON_WORKER.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--node", required=True)
        command.add_argument("--attempt", type=int, required=True)
    for name, (text, _, words) in _SCRIPTS.items():
        # DAGMan passes negative numbers ($RETURN -1001, $JOBID -1.-1 when no job was submitted): "-" begins no option here.
        command = commands.add_parser(name, help=text, prefix_chars="+", add_help=False)
        for word, kind in words.items():
            command.add_argument(word, type=kind)
    return parser
