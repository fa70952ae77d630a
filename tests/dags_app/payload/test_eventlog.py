"""Job event logs as both HTCondor versions write them: four jobs, of which one ends well, one with 65, one by SIGKILL, and one
is held, released and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dags_app.payload.post.eventlog import execute_site, job_history, read_events
from tests.support.places import ROOT

LOGS = sorted((ROOT / "tests/data/payload").glob("cluster-*.log"))
SITE = "GLIDEIN_CMSSite"


@pytest.fixture(params=LOGS, ids=[path.stem for path in LOGS])
def log(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def cluster(log: Path) -> str:
    return next(read_events(log)).job_id.partition(".")[0]


def test_logs_of_both_supported_versions_are_recorded() -> None:
    assert [path.stem for path in LOGS] == ["cluster-23.9.6", "cluster-25.14.1"]


def test_a_job_that_ended_well(log: Path, cluster: str) -> None:
    found = job_history(log, f"{cluster}.0", SITE)
    assert (found.site, found.exit_signal, found.hold_reason, found.removed_reason) == ("T1_US_FNAL", None, None, None)
    assert found.wall_seconds is not None and found.wall_seconds >= 1
    assert found.cpu_seconds == 0.0 and found.memory_mb == 3


def test_a_job_that_a_signal_ended(log: Path, cluster: str) -> None:
    assert job_history(log, f"{cluster}.2", SITE).exit_signal == 9
    assert job_history(log, f"{cluster}.1", SITE).exit_signal is None


def test_a_job_that_was_removed_after_a_hold_it_came_out_of(log: Path, cluster: str) -> None:
    found = job_history(log, f"{cluster}.3", SITE)
    assert found.removed_reason == "via condor_rm (by user wms2)"
    assert found.hold_reason is None, "it ran again since"


def test_a_hold_is_the_last_word_until_the_job_runs_again(log: Path, cluster: str, tmp_path: Path) -> None:
    text = log.read_text()
    held = tmp_path / "held.log"
    held.write_text(text[: text.index("Job was released")].rpartition("013 (")[0])
    assert job_history(held, f"{cluster}.3", SITE).hold_reason == "held by hand (by user wms2)"


def test_an_event_that_is_still_being_written_is_left_out(log: Path, cluster: str, tmp_path: Path) -> None:
    text = log.read_text()
    cut = tmp_path / "cut.log"
    cut.write_text(text[: text.index("Job was aborted") + 20])
    assert job_history(cut, f"{cluster}.3", SITE).removed_reason is None


def test_the_site_is_that_of_the_last_execution_of_the_cluster(log: Path, cluster: str, tmp_path: Path) -> None:
    again = tmp_path / "again.log"
    event = f'001 ({cluster}.000.000) 2026-11-21 03:00:00 Job executing on host: <x>\n\t{SITE} = "T2_CH_CERN"\n...\n'
    other = f'001 (7{cluster}.000.000) 2026-11-21 03:00:01 Job executing on host: <x>\n\t{SITE} = "T2_US_Purdue"\n...\n'
    again.write_text(log.read_text() + event + other)
    assert execute_site(again, f"{cluster}.0", SITE) == "T2_CH_CERN"
    assert execute_site(again, "999999.0", SITE) is None


def test_no_log_is_no_history(tmp_path: Path) -> None:
    assert job_history(tmp_path / "none.log", "1.0", SITE).wall_seconds is None


def test_an_event_at_no_time_is_passed_over(log: Path, cluster: str, tmp_path: Path) -> None:
    damaged = tmp_path / "cluster.log"
    damaged.write_text(f"005 ({int(cluster):03d}.000.000) 2026-13-41 10:00:00 Job terminated.\n...\n" + log.read_text())
    assert job_history(damaged, f"{cluster}.0", SITE) == job_history(log, f"{cluster}.0", SITE)
