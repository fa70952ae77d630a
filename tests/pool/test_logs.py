"""Logs of a failed job on the real stack: brought by HTCondor, kept by the POST script, shown on the page, packed or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dags_app.attempts import stored_logs
from dags_app.models import DAG, FailureSample
from dags_app.packs import pack
from requests_app.models import RequestStatus
from tests.support.html import links
from tests.support.inputs import seeded_input, small_reprocessing
from tests.support.outcomes import ended, imported, status
from tests.support.stack import worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
SETTINGS = {"jobs_per_work_unit": 1, "error_max_rescue_attempts": 0, "error_same_units": 0}


def test_the_logs_of_a_job_that_could_not_read_its_input_are_one_click_from_the_error(
    ready: None, tmp_path: Path, client: Client
) -> None:
    dataset = seeded_input(tmp_path)
    bad = sorted((Path(os.environ["WMS2_STATE_DIR"]) / "storage").glob(f"*/store/**/{dataset.split('/')[1]}/**/*.root"))[0]
    bad.write_bytes(b"not a ROOT file")
    request = imported(small_reprocessing(dataset))
    with worker(**SETTINGS) as running:
        running.wait(lambda: ended(request), seconds=300)
    assert status(request) == RequestStatus.HELD
    dag = DAG.objects.get(workflow__request=request)
    sample = FailureSample.objects.get(dag=dag, node="proc_000000")
    (kept,) = stored_logs(dag)
    assert (kept.job, kept.code) == ((sample.unit, sample.node, sample.attempt, sample.job_id), 8021)
    archives = [path.name for path in Path(dag.submit_dir).rglob("*.logs.tar.gz")]
    assert archives == [kept.name], "nothing is left of the jobs that did well"
    client.force_login(User.objects.create_user("reader"))
    for _ in range(2):
        page = client.get(f"/requests/{request.request_name}/").content.decode()
        (link, *_) = [link for link in links(page, "part-errors") if link.endswith("/logs/")]
        logs = client.get(link).content.decode()
        assert "cmsRun.stderr</h2>" in logs and bad.name in logs
        for name in ("job.ad", "environment.txt", "report.json", "wrapper.log", "PSet.py", "FrameworkJobReport.xml"):
            assert name in logs
        pack(Path(dag.submit_dir))
    assert not Path(dag.submit_dir).exists()
