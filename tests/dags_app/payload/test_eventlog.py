"""Job event logs as both HTCondor versions write them: four jobs, of which one ends well, one with 65, one by SIGKILL, and one
is held, released and removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
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


def test_what_a_hold_ends_is_logged_as_evicted_and_is_no_eviction(log: Path, cluster: str, tmp_path: Path) -> None:
    found = job_history(log, f"{cluster}.3", SITE)
    assert (found.starts, found.evictions) == (2, 0)
    again = tmp_path / "again.log"
    start = f'001 ({cluster}.003.000) 2026-11-21 03:0{{}}:00 Job executing on host: <x>\n\t{SITE} = "T2_CH_CERN"\n...\n'
    end = f"004 ({cluster}.003.000) 2026-11-21 03:0{{}}:30 Job was evicted.\n\t(0) CPU times\n...\n"
    again.write_text(log.read_text() + "".join(text.format(minute) for minute in (1, 2) for text in (start, end, end)))
    found = job_history(again, f"{cluster}.3", SITE)
    assert (found.starts, found.evictions, found.wall_seconds) == (4, 2, 30)


def test_what_another_queue_did_to_a_job_of_the_same_number_is_not_this_jobs(log: Path, cluster: str, tmp_path: Path) -> None:
    again, job = tmp_path / "again.log", f"({cluster}.003.000) 2026-11-21 03:00:00"
    text = f'000 {job} Job submitted from host: <x>\n...\n001 {job} Job executing on host: <x>\n\t{SITE} = "T2_CH_CERN"\n...\n'
    again.write_text(log.read_text() + text)
    found = job_history(again, f"{cluster}.3", SITE)
    assert (found.removed_reason, found.site, found.starts) == (None, "T2_CH_CERN", 1)


def test_no_log_is_no_history(tmp_path: Path) -> None:
    assert job_history(tmp_path / "none.log", "1.0", SITE).wall_seconds is None


@pytest.mark.parametrize("at", ["2026-13-41 10:00:00", "2026-11-28 10:00:00+99:00", "0001-01-01 00:00:00+05:00"])
def test_an_event_at_no_time_is_passed_over(log: Path, cluster: str, tmp_path: Path, at: str) -> None:
    damaged = tmp_path / "cluster.log"
    damaged.write_text(f"005 ({int(cluster):03d}.000.000) {at} Job terminated.\n...\n" + log.read_text())
    assert job_history(damaged, f"{cluster}.0", SITE) == job_history(log, f"{cluster}.0", SITE)


def half_an_hour(path: Path, begins: str, ends: str) -> float | None:
    path.write_text(
        f"000 (012.000.000) {begins[:11]}00:30:00{begins[19:]} Job submitted from host: <127.0.0.1:9618>\n...\n"
        f"001 (012.000.000) {begins} Job executing on host: <127.0.0.1:9618>\n...\n"
        f"005 (012.000.000) {ends} Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
    )
    return job_history(path, "12.0", SITE).wall_seconds


@pytest.fixture
def at_cern(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A submit host with summer time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


AUTUMN, SPRING = ("2026-10-25 02:50:00", "2026-10-25 02:20:00"), ("2026-03-29 01:50:00", "2026-03-29 03:20:00")


@pytest.mark.usefixtures("at_cern")
@pytest.mark.parametrize(("begins", "ends"), [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_half_an_hour_over_a_change_of_the_clock_is_half_an_hour(tmp_path: Path, begins: str, ends: str) -> None:
    assert half_an_hour(tmp_path / "nodes.log", begins, ends) == 1800


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("2026-10-25T00:50:00Z", "2026-10-25T01:20:00Z"),
        ("2026-10-25 00:50:00.123Z", "2026-10-25 01:20:00.456Z"),
        ("2026-10-25T02:50:00+02:00", "2026-10-25T02:20:00+01:00"),
        ("2026-10-24T20:50:00-0400", "2026-10-24T21:20:00-0400"),
        ("2026-10-25 02:50:00.123 +0200", "2026-10-25 02:20:00.123 +0100"),
    ],
)
def test_times_are_read_with_their_zone(tmp_path: Path, begins: str, ends: str) -> None:
    assert half_an_hour(tmp_path / "nodes.log", begins, ends) == 1800


def test_where_the_clock_went_back_and_no_zone_says_why_nobody_knows_how_long_it_took(tmp_path: Path) -> None:
    assert half_an_hour(tmp_path / "nodes.log", "2026-06-25 02:50:00", "2026-06-25 02:20:00") is None
