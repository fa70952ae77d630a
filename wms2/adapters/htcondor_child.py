"""The process that talks to HTCondor: ``python -m wms2.adapters.htcondor_child``, JSON questions on stdin, answers on stdout.

The only module that imports ``htcondor2``. Why a process: a call to a silent daemon lasts 60 s or
more, holds Python's interpreter lock all that time (measured) and takes no limit; in a thread it would freeze the whole worker. A
process can be killed, and has its own working directory, configuration and environment, which a submission needs.

Question, a line each: ``{"schedd", "collector", "token_dir", "ends_at", "calls": [{"op", …}, …]}``; the calls are made in order.
Answer, a line each: ``{"results": […]}`` or ``{"error": {"kind": "unavailable" | "rejected", "detail"}}`` for the first call that
failed. The process ends with its input, and after as many seconds without a question as its argument says.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import classad2
import htcondor2

Call = Mapping[str, Any]
#: What HTCondor calls a client that it has not authenticated.
_NO_OWNERS = ("unauthenticated", "unmapped", "anonymous")


class Refused(Exception):
    """The submission cannot be made; nothing was sent to the schedd."""


class Client:
    """One question's way to one collector and one schedd; a public method for each ``op`` of a call.

    Where the schedd is, the collector is asked for each question: an address that was kept may be another daemon's by now.
    """

    def __init__(self, schedd_name: str, collector: str, token_dir: str) -> None:
        if token_dir:
            # In process, not by environment: _CONDOR_* variables of a submitter are copied into DAGMan's own environment.
            htcondor2.param["SEC_TOKEN_DIRECTORY"] = token_dir
            htcondor2.param["SEC_CLIENT_AUTHENTICATION_METHODS"] = "IDTOKENS"
        self._schedd_name = schedd_name
        self._collector = htcondor2.Collector(collector)
        self._location: Any = None

    def _schedd(self) -> Any:
        """The schedd, by its address in the collector."""
        return htcondor2.Schedd(self._located())

    def _located(self) -> Any:
        if self._location is None:
            self._location = self._collector.locate(htcondor2.DaemonType.Schedd, self._schedd_name)
            if self._location is None:
                raise htcondor2.HTCondorException(f"the collector knows no schedd {self._schedd_name!r}")
        return self._location

    def config(self, call: Call) -> dict[str, str | None]:
        """The schedd's own settings of these names."""
        remote = htcondor2.RemoteParam(self._located())
        return {name: remote.get(name) for name in call["names"]}

    def owner(self, call: Call) -> str:
        """Whose the jobs are that we submit: as whom the schedd has authenticated us for that."""
        user = str(htcondor2.ping(self._located(), "WRITE").get("MyRemoteUserName") or "").partition("@")[0]
        if not user or user in _NO_OWNERS:
            why = f"{self._schedd_name} has not authenticated us ({user or 'no user'}): this credential may not submit jobs"
            raise htcondor2.HTCondorException(why)
        return user

    def query(self, call: Call) -> list[dict[str, Any]]:
        """Job ads in the queue."""
        return [plain(ad) for ad in self._schedd().query(call["constraint"], call["projection"])]

    def groups(self, call: Call) -> list[dict[str, Any]]:
        """How many jobs in the queue have the same values of what is projected (``JobCount``): the schedd counts."""
        grouped = htcondor2.QueryOpts.GroupBy
        return [plain(ad) for ad in self._schedd().query(call["constraint"], call["projection"], opts=grouped)]

    def history(self, call: Call) -> list[dict[str, Any]]:
        """Job ads that left the queue, latest first, at most ``limit``; none from the first on that ``since`` is true of."""
        found = self._schedd().history(call["constraint"], call["projection"], call["limit"], call.get("since"))
        return [plain(ad) for ad in found]

    def act(self, call: Call) -> dict[str, Any]:
        """Remove, hold or release what matches; the totals."""
        action = getattr(htcondor2.JobAction, call["action"])
        # A plain string as the reason is dropped by the bindings; a pair is not.
        return plain(self._schedd().act(action, call["constraint"], (call["reason"], 0)))

    def edit(self, call: Call) -> int:
        """Set one attribute; the number of jobs changed. The bindings raise when nothing matches."""
        return int(self._schedd().edit(call["constraint"], call["attribute"], call["value"]))

    def schedd_ad(self, call: Call) -> dict[str, Any]:
        """The schedd's own ad, asked of the schedd itself: the collector may hold an old one. It answers with all it has."""
        ad = self._collector.directQuery(htcondor2.DaemonType.Schedd, self._schedd_name, call["projection"])
        return {name: _plain_value(ad.eval(name)) for name in call["projection"] if name in ad}

    def collector_ad(self, call: Call) -> list[dict[str, Any]]:
        """The collector's copy of the schedd's ad; none when it has not heard of it for long."""
        found = self._collector.query(htcondor2.AdType.Schedd, call["constraint"], call["projection"])
        return [plain(ad) for ad in found]

    def slots(self, call: Call) -> list[dict[str, Any]]:
        """Slot ads of the pool."""
        return [plain(ad) for ad in self._collector.query(htcondor2.AdType.Startd, projection=call["projection"])]

    def submit(self, call: Call) -> int:
        """Submit ``dag_file`` of ``submit_dir``, on the schedd's file system; its cluster.

        A rescue file that is there is used (DAGMan's AutoRescue). What an earlier submission left behind is written over: with
        ``update_submit``, never with ``force``, which would rename the rescue files of both levels and start from nothing.
        ``Submit.from_dag`` works only in the DAG's directory, and needs ``BIN`` of the configuration to hold ``condor_dagman``.

        Raises:
            Refused: before anything was sent.
            htcondor2.HTCondorException: the schedd did not take it, or its answer was lost: unknown.
        """
        self._schedd()  # first: nothing is written into the directory when there is no schedd to take it
        path, dag_file = Path(call["submit_dir"]), call["dag_file"]
        if not (path / dag_file).is_file():
            raise Refused(f"no file {path / dag_file}")
        if not os.access(path, os.W_OK):
            raise Refused(f"{path} is not writable: DAGMan's files could not be made there")
        _refuse_finished(path / f"{dag_file}.metrics")
        os.chdir(path)
        options = {"Priority": call["priority"], "MaxJobs": call["units"], "UpdateSubmit": True}
        try:
            description = htcondor2.Submit.from_dag(dag_file, options)
        except (htcondor2.HTCondorException, OSError) as error:
            raise Refused(f"{path / dag_file} cannot be submitted: {error}") from error
        return _submitted(self, description, call)

    def submit_job(self, call: Call) -> int:
        """Submit one job with ``submit_dir`` as its directory; errors as ``submit``."""
        self._schedd()
        try:
            os.chdir(call["submit_dir"])
            description = htcondor2.Submit(call["text"])
        except (htcondor2.HTCondorException, OSError, ValueError) as error:
            raise Refused(f"a job of {call['submit_dir']} cannot be submitted: {error}") from error
        return _submitted(self, description, call)


def _submitted(client: Client, description: Any, call: Call) -> int:
    """With its stamps, whose values are ClassAd literals already."""
    owner = client.owner(call)
    if call["owner"] not in ("", owner):
        raise Refused(
            f"the job would be {owner}'s, and those that are known here are {call['owner']}'s: bring back the former credential,"
            " or have the schedd checked (Check)"
        )
    for name, literal in call["attributes"].items():
        description[f"My.{name}"] = literal
    return int(client._schedd().submit(description).cluster())


def _refuse_finished(metrics: Path) -> None:
    """A DAG that ran to its end has no rescue file: submitted again, it would run everything again."""
    try:
        exit_code = json.loads(metrics.read_text()).get("exitcode")
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError) as error:
        raise Refused(f"{metrics} cannot be read: {error}; look whether the DAG has finished") from error
    if exit_code == 0:
        raise Refused(f"{metrics} says that this DAG has finished; submitting it again would run everything again")


def plain(ad: Mapping[str, Any]) -> dict[str, Any]:
    """An ad as JSON values: expressions evaluated, undefined and error as None."""
    return {str(name): _plain_value(value) for name, value in ad.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, classad2.ExprTree):
        value = value.eval()
    # Value is an IntEnum-like enumeration: it must be tested before int.
    if value is None or isinstance(value, classad2.Value):
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    return str(value)


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Make the calls."""
    try:
        client = Client(question["schedd"], question["collector"], question["token_dir"])
        return {"results": [getattr(client, call["op"])(call) for call in question["calls"]]}
    except Refused as error:
        return {"error": {"kind": "rejected", "detail": str(error)}}
    except htcondor2.HTCondorException as error:
        return {"error": {"kind": "unavailable", "detail": str(error)}}


def main() -> None:
    """Answer questions, where only we write."""
    idle_seconds = float(sys.argv[1]) if len(sys.argv) > 1 else None
    # HTCondor's library prints to stdout ("Running rescue DAG 1"): keep that apart from the answer.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        # One question is there at a time, so none waits in a buffer where select does not see it.
        while select.select([sys.stdin], [], [], idle_seconds)[0] and (line := sys.stdin.readline()):
            question = json.loads(line)
            # The parent kills us when it has waited long enough. If it is gone, the kernel does: no call may outlive its limit,
            # or a submission could turn up after its absence was proved. SIGALRM is not handled, so the interpreter lock does
            # not matter. A parent that was paused before it asked, or while it did, has no time left either.
            left_seconds = question["ends_at"] - time.clock_gettime(time.CLOCK_BOOTTIME)
            if left_seconds <= 0:
                signal.raise_signal(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, left_seconds)
            reply = answer(question)
            signal.setitimer(signal.ITIMER_REAL, 0)
            output.write(json.dumps(reply, allow_nan=False) + "\n")
            output.flush()


if __name__ == "__main__":
    main()
