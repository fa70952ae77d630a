"""Giving a DAG, or one job, to a schedd, inside the child process (``htcondor_child``): directory, stamps. Never ``force``.

``Submit.from_dag`` works only in the DAG's directory and needs ``BIN`` of the client's configuration to hold ``condor_dagman``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import htcondor2


class Refused(Exception):
    """The submission cannot be made; nothing was sent to the schedd."""


def submit_dag(schedd: Any, submit_dir: str, dag_file: str, attributes: Mapping[str, str], priority: int, units: int) -> int:
    """Submit ``dag_file`` of ``submit_dir``; returns the cluster.

    A rescue file that is there is used (DAGMan's AutoRescue). What an earlier submission left behind is written over: with
    ``update_submit``, never with ``force``, which would rename the rescue files of both levels and start from nothing.

    Args:
        schedd: an ``htcondor2.Schedd``.
        submit_dir: directory of the DAG, on the schedd's file system.
        dag_file: file name in it.
        attributes: stamps for the outer DAGMan's ad, values already as ClassAd literals.
        priority: ``-Priority`` of the DAG.
        units: ``-MaxJobs`` of it; 0: none.

    Raises:
        Refused: before anything was sent.
        htcondor2.HTCondorException: the schedd did not take it, or its answer was lost: unknown.
    """
    path = Path(submit_dir)
    if not (path / dag_file).is_file():
        raise Refused(f"no file {path / dag_file}")
    if not os.access(path, os.W_OK):
        raise Refused(f"{path} is not writable: DAGMan's files could not be made there")
    _refuse_finished(path / f"{dag_file}.metrics")
    os.chdir(path)
    options = {"Priority": priority, "MaxJobs": units, "UpdateSubmit": True}
    try:
        description = htcondor2.Submit.from_dag(dag_file, options)
    except (htcondor2.HTCondorException, OSError) as error:
        raise Refused(f"{path / dag_file} cannot be submitted: {error}") from error
    return _submit(schedd, description, attributes)


def submit_job(schedd: Any, submit_dir: str, text: str, attributes: Mapping[str, str]) -> int:
    """Submit one job with ``submit_dir`` as its directory; arguments and errors as ``submit_dag``."""
    try:
        os.chdir(submit_dir)
        description = htcondor2.Submit(text)
    except (htcondor2.HTCondorException, OSError, ValueError) as error:
        raise Refused(f"a job of {submit_dir} cannot be submitted: {error}") from error
    return _submit(schedd, description, attributes)


def _submit(schedd: Any, description: Any, attributes: Mapping[str, str]) -> int:
    for name, literal in attributes.items():
        description[f"My.{name}"] = literal
    return int(schedd.submit(description).cluster())


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
