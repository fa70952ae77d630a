"""Commands of the runbook, as they stand there, on a real pool."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.adapter_pool import Pool
from tests.support.places import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.pool


def test_dags_that_no_row_knows_are_found_by_the_runbooks_lines(tmp_path: Path) -> None:
    runbook = (ROOT / "docs/runbook.md").read_text()
    (asks,) = re.findall(r"condor_q .*> queue", runbook)
    (compares,) = re.findall(r"join .* rows", runbook)
    pool = Pool.from_environment()
    adapter, known, unknown = pool.adapter(), pool.dag(), pool.dag()
    clusters = [dag.submit(adapter) for dag in (known, unknown)]
    try:
        until(lambda: len(adapter.watch(pool.instance)[1]) == 4)  # their inner DAGMans are none of these
        (tmp_path / "rows").write_text(f"{known.dag_id}\n")
        script = f"{asks.replace('INSTANCE', pool.instance).replace('OWNER', pwd.getpwuid(os.getuid()).pw_name)}\n{compares}"
        found = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert found.stdout == f"{unknown.dag_id} user_Task_1 {clusters[1]}\n"
    finally:
        for cluster in clusters:
            adapter.remove(cluster, "end of test")
        until(lambda: not adapter.watch(pool.instance)[1])
