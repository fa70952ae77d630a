"""Command line: ``serve`` the simulated services, ``seed`` them, ``submit`` a request to them."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from deploy.simulators import seed
from deploy.simulators.client import Caller, CallFailed, submit
from deploy.simulators.reqmgr2.others import Habits
from deploy.simulators.server import serve


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code (0 done, 1 refused or failed, 2 wrong usage)."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (CallFailed, ValueError, OSError) as error:
        print(f"simulators: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.simulators", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serving = commands.add_parser("serve", help="serve ReqMgr2, ConfigCache, DBS and CRIC under one port until SIGTERM")
    serving.add_argument("--state", type=Path, required=True, help="directory of the SQLite files; made when missing")
    serving.add_argument("--port", type=int, required=True, help="0 takes a free port; the URL is printed once it listens")
    serving.add_argument(
        "--dbs-bulkblocks",
        choices=("concurrent", "sequential"),
        default="concurrent",
        help="what DBS does with a block it has already: refuse (as production) or add files",
    )
    serving.add_argument("--agents-seconds", type=float, help="agents of WMCore take requests that are staged for so long")
    serving.add_argument("--settle-seconds", type=float, help="aborted and forced requests move on after this by themselves")
    serving.add_argument(
        "--archive-seconds", type=float, help="what is completed is closed out, announced, archived, each after this"
    )
    serving.set_defaults(run=_serve)
    seeding = commands.add_parser("seed", help="put documents, datasets and rows into the services; may be repeated")
    seeding.add_argument("--url", required=True)
    seeding.add_argument("--file", type=Path, required=True)
    seeding.add_argument("--storage-root", type=Path, help="read sizes and checksums the seed leaves out from DIR/<RSE>/<LFN>")
    seeding.set_defaults(run=_seed)
    submitting = commands.add_parser("submit", help="create, approve, assign and stage a request; prints its name")
    submitting.add_argument("--url", required=True)
    submitting.add_argument("--file", type=Path, required=True, help="JSON with createRequest and assignRequest")
    submitting.add_argument("--team", help="replaces the Team of the assignment")
    submitting.add_argument("--login", default="requester", help="the requestor; the request's name begins with it")
    submitting.add_argument("--once", action="store_true", help="only name the request, if there is one with its PrepID")
    submitting.set_defaults(run=_submit)
    return parser


def _serve(options: argparse.Namespace) -> int:
    seconds = {"agents_seconds": options.agents_seconds, "settle_seconds": options.settle_seconds}
    habits = Habits(**seconds, close_seconds=options.archive_seconds, archive_seconds=options.archive_seconds)
    return serve(options.state, options.port, options.dbs_bulkblocks, habits)


def _seed(options: argparse.Namespace) -> int:
    for line in seed.apply(Caller(options.url, login="seed"), options.file, options.storage_root):
        print(line)
    return 0


def _submit(options: argparse.Namespace) -> int:
    caller, pair = Caller(options.url, login=options.login), json.loads(options.file.read_text())
    path = f"/reqmgr2/data/request?detail=false&prep_id={quote(pair['createRequest']['PrepID'])}"
    # a list is as old as the question before
    there = [caller.json("GET", path)["result"] for _ in range(2)][-1] if options.once else []
    print(there[0] if there else submit(caller, pair, options.team))
    return 0
