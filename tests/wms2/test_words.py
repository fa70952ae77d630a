"""Durations, sizes and colours: what they say at their edges, and that no status is without a colour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dags_app.models import DAGStatus, WorkUnitState
from outputs_app.models import BlockStatus, EffectState, Validity
from requests_app.models import RequestStatus, WorkflowStatus
from sites_app.models import ScheddState, SiteStatus
from tests.support.cases import in_one_test
from wms2.web.colours import COLOURS
from wms2.web.formatting import ago, counted, duration, size, spelled

NOW = datetime(2026, 9, 4, 12, 0, tzinfo=UTC)


@in_one_test("seconds, words", [
        (-5, "0 s"), (0, "0 s"), (119.9, "119 s"), (120, "2 min"), (3599, "59 min"), (3600, "1 h"), (3660, "1 h 1 min"),
        (86_399, "23 h 59 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (86_460, "1 d"), (40 * 86_400, "40 d"),
    ])  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_moments_before_and_after_now_are_told_apart() -> None:
    assert ago(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert ago(NOW + timedelta(seconds=40), NOW) == "in 40 s"
    assert ago(NOW, NOW) == "0 s ago"
    assert ago(None) == ""


@in_one_test("number, words", [(0, "0 B"), (999, "999 B"), (2_600_000, "2.6 MB"), (10**12, "1.0 TB"), (10**19, "10000.0 PB")])
def test_sizes_have_decimal_prefixes(number: int, words: str) -> None:
    assert size(number) == words


def test_nouns_follow_their_number() -> None:
    assert counted(1, "work unit") == "1 work unit"
    assert counted(3000, "work unit") == "3,000 work units"
    assert counted(0, "request", "requests") == "0 requests"


@in_one_test(
    "choices",
    [RequestStatus, WorkflowStatus, DAGStatus, WorkUnitState, BlockStatus, Validity, EffectState, SiteStatus, ScheddState],
)
def test_every_status_has_a_colour(choices: type) -> None:
    assert set(choices.values) <= COLOURS.keys()  # type: ignore[attr-defined]


def test_every_tone_has_its_colours_in_the_style_sheet() -> None:
    from deploy.stack import paths

    css = (paths.checkout() / "wms2/static/wms2/colours.css").read_text()
    for colour in set(COLOURS.values()):
        assert f".colour-{colour} {{" in css
        assert css.count(f"--{colour}-ground:") == css.count(f"--{colour}-text:") == 2, "light and dark"


def test_names_of_columns_are_spelled_as_people_write_them() -> None:
    assert [spelled(name) for name in ("tape_rse", "dbs block name", "cric_seen_at", "status", "DAGs of it")] == [
        "tape RSE", "DBS block name", "CRIC seen at", "status", "DAGs of it",
    ]  # fmt: skip
