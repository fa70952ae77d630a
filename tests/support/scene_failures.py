"""What failed in the scene's held request: rows as WMS2 makes them from a DAG's failure log."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dags_app.failure_rules import failure_rules_load
from dags_app.models import DAG, FailedInputFile, FailureCategory, FailureGroup, FailureSample
from dags_app.payload.contract.layout import logs_name
from dags_app.payload.contract.packed import write_logs
from requests_app.models import Request
from tests.support.payload_schemas import validate

C = FailureCategory
_BAD_FILE = "/store/mc/RunIII2024Summer24/MinBias_13p6TeV/GEN-SIM/v1/00001/5d1c0a7e.root"
#: category, code, step, site, rule, attempts, given up, what was done, reason, message.
_KINDS = (
    (C.DATA, 8021, "DIGIRaw", "T2_CH_CERN", "cms-8021", 31, 31, {"other_site": 16, "permanent_failure": 15},
     "rule cms-8021: the file is named in the message",
     "FileReadError: Fatal Root Error: @SUB=TStorageFactoryFile::ReadBuffer read from Storage::xread returned -1"),
    (C.INFRASTRUCTURE, 60311, "stageOut", "T2_US_Purdue", "cms-60307-60311", 14, 2, {"retry": 12, "used_up": 2},
     "rule cms-60307-60311: no other site is left",
     "StageOutFailure: gfal-copy exit status 70: TRANSFER globus_ftp_client: the server responded with an error 500"),
    (C.TRANSIENT, 50660, "Reco", "T1_US_FNAL", "cms-50660", 9, 0, {"more_memory": 9}, "rule cms-50660: 2000 -> 3000 MB",
     "PerformanceKill: RSS (2317 MB) exceeds the limit of 2000 MB"),
)  # fmt: skip


def failures(request: Request, now: datetime) -> None:
    """Three kinds, each with its newest attempts, and a bad input file."""
    failure_rules_load()
    dag = DAG.objects.get(workflow__request=request)
    for number, (category, code, step, site, rule, attempts, given_up, actions, reason, message) in enumerate(_KINDS):
        last = now - timedelta(hours=3, minutes=20 + 7 * number)
        group = FailureGroup.objects.create(
            workflow=dag.workflow, category=category, code=code, step=step, site=site, rule=rule, attempts=attempts,
            given_up=given_up, actions=actions, reason=reason, first_at=last - timedelta(hours=9), last_at=last,
        )  # fmt: skip
        for place in range(3):
            FailureSample.objects.create(
                group=group, dag=dag, unit=f"mg_{87 + place:06d}", node=f"proc_{number:06d}", attempt=place,
                job_id=f"{5300 + place}.0", final=place < given_up, at=last, message=message,
                bad_files=[_BAD_FILE] if category == C.DATA else [],
                log_tail=f"Begin processing the 101st record.\n{message}\nend of the log",
            )  # fmt: skip
    packed_logs(dag, "mg_000087", "proc_000000", 0, "5300.0", f"Begin processing the 101st record.\n{_KINDS[0][-1]}\n")
    FailedInputFile.objects.create(
        workflow=dag.workflow, lfn=_BAD_FILE, attempts=31,
        site="T2_CH_CERN", code=8021, last_at=now - timedelta(hours=3, minutes=20),
    )  # fmt: skip


def packed_logs(dag: DAG, unit: str, node: str, attempt: int, job_id: str, stderr: str) -> None:
    """The archive of a job whose one step wrote this."""
    place = Path(dag.submit_dir) / unit
    step = place / "steps" / "step1_DIGIRaw"
    step.mkdir(parents=True)
    (step / "PSet.py").write_text("import FWCore.ParameterSet.Config as cms\nprocess = cms.Process('DIGI')\n")
    (step / "cmsRun.stdout").write_text("Initializing\n")
    (step / "cmsRun.stderr").write_text(stderr)
    for path in step.iterdir():
        os.utime(path, (0, 0))
    ad = "ClusterId = {}\nProcId = {}\n".format(*job_id.split(".")).encode()
    write_logs(place / logs_name(node, attempt, job_id), [("job.ad", ad), ("environment.txt", b"host: wn1\n")], place / "steps")
    shutil.rmtree(place / "steps")


def line(**changes: Any) -> dict[str, Any]:
    made = {
        "schema": "wms2.failure/1", "at": "2026-11-21T10:00:00Z", "unit": "mg_000000", "node": "proc_000000",
        "role": "processing", "attempt": 0, "job_id": "7.0", "fence": 1, "final": False, "site": "T1_US_FNAL", "code": 8001,
        "step": "Gen", "category": "transient", "action": "retry", "rule": "cms-8001", "reason": "exit code 8001",
        "message": "it broke", "bad_input_files": [], "log_tail": "the end", **changes,
    }  # fmt: skip
    validate("failure", made)
    return made
