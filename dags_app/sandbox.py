"""Packing the sandbox of a DAG directory, with the PSets."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping

from dags_app.payload.contract.layout import pset_path
from dags_app.planning.specs import WorkflowSpec
from wms2.errors import PlanningRefused


def sandbox_pack(*, workflow: WorkflowSpec, psets: Mapping[str, str]) -> bytes:
    """``sandbox.tar.gz``: the same bytes for the same PSets.

    Args:
        psets: step name -> text of its PSet.

    Raises:
        PlanningRefused: a step has no PSet.
    """
    missing = [step.name for step in workflow.steps if not psets.get(step.name)]
    if missing:
        raise PlanningRefused(f"no PSet is stored for step {', '.join(missing)}; import the request again")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for step in workflow.steps:
            content = psets[step.name].encode()
            info = tarfile.TarInfo(pset_path(step.number, step.name))
            info.size, info.mode, info.mtime = len(content), 0o644, 0
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)
