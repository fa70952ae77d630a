"""Which attempts' logs a DAG keeps: the first of each kind of error and the newest of each node, within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dags_app.payload.contract.packed import StoredLogs, read_stored_logs
from dags_app.payload.contract.rules import LogLimits
from dags_app.payload.post.kept_logs import choose, settle

FIRST = StoredLogs("mg_000000", "proc_000000", 0, "0.0", "2026-11-21T10:00:00Z", 8001, "Gen", 10)


def made(*changes: dict[str, object]) -> list[StoredLogs]:
    """One attempt after the other."""
    return [FIRST._replace(job_id=f"{n}.0", **each) for n, each in enumerate(changes)]  # type: ignore[arg-type]


def jobs(kept: Sequence[StoredLogs]) -> list[int]:
    return [int(each.job_id.partition(".")[0]) for each in kept]


def test_of_a_node_the_newest_and_the_first_three_of_a_kind_stay() -> None:
    assert jobs(choose(made(*[{"attempt": n} for n in range(7)]), LogLimits())) == [0, 1, 2, 6]


def test_the_first_of_another_kind_stays_too() -> None:
    known = made(*[{"attempt": n} for n in range(4)], {"code": 50660, "attempt": 4}, {"attempt": 5})
    assert jobs(choose(known, LogLimits())) == [0, 1, 2, 4, 5]


def test_what_did_well_and_is_kept_does_not_replace_a_failure() -> None:
    assert jobs(choose(made(*[{"attempt": n} for n in range(4)], {"code": 0, "step": ""}), LogLimits())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (LogLimits(per_unit=2), [0, 1, 2, 17, 18, 19]),
        (LogLimits(per_dag=5), [0, 1, 2, 18, 19]),
        (LogLimits(bytes_per_dag=49), [0, 1, 2, 19]),
        (LogLimits(bytes_per_dag=1), [19]),
    ],
    ids=["unit", "dag", "bytes", "the newest always"],
)
def test_beyond_a_bound_the_oldest_that_are_no_firsts_go(limits: LogLimits, kept: list[int]) -> None:
    known = made(*[{"node": f"proc_{n:06d}", "unit": f"mg_{min(n // 2, 1) if n < 18 else 2:06d}"} for n in range(20)])
    assert jobs(choose(known, limits)) == kept


def record(unit: Path, job: int, code: int = 8001, node: str = "proc_000000") -> dict[str, object]:
    """A judged attempt whose logs are there."""
    name = f"{node}.0.{job}.0.logs.tar.gz"
    (unit / name).write_bytes(b"x" * 10)
    verdict = {"code": code, "step": "Gen" if code else ""}
    return {
        "node_name": node, "attempt": 0, "job_id": f"{job}.0", "timestamp": FIRST.at, "logs": name, "classification": verdict,
    }  # fmt: skip


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    place = tmp_path / "mg_000000"
    place.mkdir()
    return place


def there(unit: Path) -> list[str]:
    return sorted(path.name.split(".")[2] for path in unit.glob("*.logs.tar.gz"))


def test_what_is_listed_is_there_and_the_rest_is_removed(unit: Path) -> None:
    for job in range(6):
        settle(unit, record(unit, job))
    assert there(unit) == ["0", "1", "2", "5"]
    assert jobs(read_stored_logs(unit.parent)) == [0, 1, 2, 5]


def test_a_script_that_runs_again_lists_an_attempt_once(unit: Path) -> None:
    for _ in range(2):
        settle(unit, record(unit, 1))
    assert jobs(read_stored_logs(unit.parent)) == [1]


def test_nothing_is_kept_of_a_success_unless_a_share_is_wanted(unit: Path) -> None:
    settle(unit, record(unit, 1, code=0))
    assert there(unit) == [] and read_stored_logs(unit.parent) == []
    settle(unit, {**record(unit, 2), "logs": None})
    assert read_stored_logs(unit.parent) == []


def test_a_damaged_line_costs_that_line(unit: Path) -> None:
    settle(unit, record(unit, 1))
    with (unit.parent / "kept_logs.jsonl").open("a") as stream:
        stream.write('{"unit": 3}\n{"cut')
    assert jobs(read_stored_logs(unit.parent)) == [1]
    settle(unit, record(unit, 2))
    assert jobs(read_stored_logs(unit.parent)) == [1, 2]


def test_trouble_with_the_list_is_told_and_changes_nothing_about_the_attempt(unit: Path) -> None:
    (unit.parent / "kept_logs.jsonl").mkdir()
    settle(unit, record(unit, 1))
    assert "proc_000000.0.1.0.logs.tar.gz could not be put among the kept logs" in (unit / "scripts.log").read_text()
    assert there(unit) == ["1"]


def test_a_list_that_is_no_text_is_written_anew(unit: Path) -> None:
    (unit.parent / "kept_logs.jsonl").write_bytes(b"\xff\xfe\x00")
    settle(unit, record(unit, 1))
    assert jobs(read_stored_logs(unit.parent)) == [1]
