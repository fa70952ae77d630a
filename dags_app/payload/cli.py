"""The command line of ``wms2_payload.pyz``. Owns argument parsing and where errors of each command go.

On worker nodes: job, merge, cleanup, site (the working directory is HTCondor's scratch directory). As DAGMan scripts: reelect
(working directory: the DAG's), elect, gather, collect, post (the unit's).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from .contract import scripts
from .contract.codes import PayloadError, exit_status, last_words
from .contract.layout import LANDING, MERGE

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
#: Nodes of the scripts that are not given one; without a node (``reelect``) a failure only repeats one that was told.
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
            print(last_words(error), file=sys.stderr)
            return exit_status(error.code)
    place = here / options["unit"] if command == "reelect" else here
    try:
        return function(here, **options)
    except PayloadError as error:
        scripts.log(place, f"{command}: {error.message}")
        node = _NODES.get(command) or options.get("node")
        if node:
            import_module(".post.script_failures", __package__).tell_script(place, command, node, error)
        return 1
    except Exception:  # a defect: the scripts' log is all that remains of a script
        scripts.log(place, f"{command}: {traceback.format_exc().rstrip()}")
        raise


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
