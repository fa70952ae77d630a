"""Every page as a person sees it: no complaint of the browser, nothing wider than the window, and as kept in docs/screenshots.

``make screenshots`` renews the pictures.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db.models import DateTimeField, Value
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Browser

from dags_app.models import DAG
from outputs_app.models import Effect, EffectState, OutputDataset
from requests_app.installation import installation_claim
from requests_app.lifecycle.alert_conditions import alerts_check
from requests_app.models import Request
from tests.support import scene, scene_rounds, scene_week
from tests.support.browser import WIDTH, Window, window
from tests.support.pictures import compare
from tests.support.places import ROOT
from tests.support.scene_samples import BAD
from tests.support.scripted.clock import compose_anew
from wms2.admin.actions import action_url

KEPT = ROOT / "docs/screenshots"
RENEW = "WMS2_RENEW_SCREENSHOTS"
#: The afternoon of the scene.
NOW = datetime(2026, 9, 4, 8, 31, 11, tzinfo=UTC)
SHOWN_PLACE = "/var/lib/wms2/submit"
PHONE = 420


@dataclass(frozen=True)
class Shot:
    """One picture: its name, the address, who looks and how.

    ``whole``: all of the page, else what fits into the window. ``awaits``: an element that a script has to make first.
    ``opens``: a part that is folded at first. ``part``: that one alone is kept.
    ``kept``: false for pages that only list what there is, and change with each table, address or session.
    """

    name: str
    path: Callable[[scene.Scene], str]
    signed_in: bool = True
    dark: bool = False
    width: int = WIDTH
    whole: bool = True
    awaits: str = "body"
    opens: str = ""
    part: str = ""
    kept: bool = True
    #: One of the few that every run takes: each template, dark and narrow once.
    first: bool = False


def _page(which: str) -> Callable[[scene.Scene], str]:
    return lambda built: reverse("request-page", args=[getattr(built, which).request_name])


def _named(name: str, *args: str) -> Callable[[scene.Scene], str]:
    return lambda _: reverse(name, args=args)


def _of(name: str, query: str, *args: str) -> Callable[[scene.Scene], str]:
    return lambda _: reverse(name, args=args) + query


def _admin(name: str, query: str = "") -> Callable[[scene.Scene], str]:
    return lambda _: reverse(f"admin:{name}") + query


def _verb(action: str, which: str) -> Callable[[scene.Scene], str]:
    def path(built: scene.Scene) -> str:
        row = getattr(built, which)
        return action_url(type(row), action, [row.pk])

    return path


def _rounds(_: scene.Scene) -> str:
    """Made when it is first looked at: the lists are pictures without it."""
    request = Request.objects.filter(request_name=scene_rounds.NAME).first()
    if request is None:
        with pytest.MonkeyPatch.context() as patch:
            _same_names(patch, 20260905)
            request = scene_rounds.three_rounds()
    return reverse("request-page", args=[request.request_name])


def _logs(built: scene.Scene) -> str:
    dag = DAG.objects.get(workflow__request=built.held)
    return reverse("logs-page", args=[dag.pk, "mg_000087", "proc_000000", 0, "5300.0"])


def _dag(built: scene.Scene) -> str:
    return reverse("dag-page", args=[DAG.objects.get(workflow__request=built.held).pk])


def _missing(built: scene.Scene) -> str:
    name = OutputDataset.objects.filter(workflow__request=built.active).order_by("name")[0].name
    return reverse("missing-lumis-page", args=[built.active.request_name]) + f"?dataset={quote(name)}"


def _retry(_: scene.Scene) -> str:
    effect = Effect.objects.get(state=EffectState.REFUSED)
    return action_url(Effect, "retry", [effect.pk])


def _hold_dag(built: scene.Scene) -> str:
    return action_url(DAG, "hold", [DAG.objects.get(workflow__request=built.active).pk])


SHOTS = (
    Shot("sites", _named("sites")),
    Shot("sites-narrow", _named("sites"), width=PHONE),
    Shot("site", _of("site-page", "?range=7d", BAD)),
    Shot("site-dark", _of("site-page", "?range=7d", BAD), dark=True),
    Shot("site-narrow", _of("site-page", "?range=7d", BAD), width=390),
    Shot("campaigns", _named("campaigns")),
    Shot("campaigns-narrow", _named("campaigns"), width=PHONE),
    Shot("campaign", _of("campaign-page", "?range=7d", scene.ERA)),
    Shot("campaign-dark", _of("campaign-page", "?range=7d", scene.ERA), dark=True),
    Shot("campaign-narrow", _of("campaign-page", "?range=7d", scene.ERA), width=390),
    Shot("failures", _of("failures", "?range=7d")),
    Shot("failures-dark", _of("failures", f"?range=7d&site={BAD}&code=60311"), dark=True),
    Shot("failures-narrow", _of("failures", "?range=7d"), width=390),
    Shot("activity", _of("activity", "?since=24h")),
    Shot("activity-narrow", _of("activity", "?since=24h"), width=390),
    Shot("operations", _named("operations"), kept=False),
    Shot("overview-week", lambda _: "/?range=7d", part="#part-charts", first=True),
    Shot("overview-week-dark", lambda _: "/?range=7d", part="#part-charts", dark=True),
    Shot("overview-week-narrow", lambda _: "/?range=7d", width=390, part="#part-charts"),
    Shot("queue", _named("queue"), kept=False),
    Shot("sign-in", lambda _: "/login/", signed_in=False, whole=False),
    Shot("overview", lambda _: "/", first=True),
    Shot("overview-dark", lambda _: "/", dark=True),
    Shot("overview-narrow", lambda _: "/", width=PHONE),
    Shot("board", lambda _: "/requests/"),
    Shot("board-dark", lambda _: "/requests/", dark=True, first=True),
    Shot("board-narrow", lambda _: "/requests/", width=PHONE),
    Shot("request", _page("active")),
    Shot("request-held", _page("held"), opens="#part-errors td summary", first=True),
    Shot("request-more-narrow", _page("held"), width=390, opens="#more-operations summary", part="#part-head"),
    Shot("missing-lumis", _missing),
    Shot("dag", _dag, first=True),
    Shot("dag-dark-narrow", _dag, dark=True, width=390),
    Shot("logs", _logs, first=True),
    Shot("alerts", _named("alerts")),
    Shot("alerts-dark", _named("alerts"), dark=True),
    Shot("alerts-narrow", _named("alerts"), width=390),
    Shot("alerts-over", lambda _: "/alerts/?open=false"),
    Shot("account", lambda _: "/account/", kept=False),
    Shot("request-dark", _page("refused"), dark=True),
    Shot("request-narrow", _page("completed"), width=PHONE, first=True),
    Shot("admin", _admin("index"), kept=False),
    Shot("admin-requests", _admin("requests_app_request_changelist"), first=True),
    Shot("admin-requests-dark", _admin("requests_app_request_changelist"), dark=True),
    Shot("admin-request", lambda built: reverse("admin:requests_app_request_change", args=[built.held.pk])),
    Shot("admin-effects", _admin("outputs_app_effect_changelist", "?state__exact=refused")),
    Shot("admin-limits", _admin("requests_app_limit_changelist")),
    Shot("admin-abort", _verb("abort", "active"), first=True),
    Shot("admin-retry", _retry),
    Shot("admin-dag-hold", _hold_dag),
    Shot("admin-release-dark", _verb("release", "held"), dark=True),
    Shot("rounds", _rounds, opens="#round-decisions summary", part="#part-rounds"),
    Shot("rounds-dark", _rounds, dark=True, opens="#round-steps summary", part="#part-rounds"),
    Shot("rounds-narrow", _rounds, width=PHONE, opens="#round-decisions summary", part="#part-rounds"),
    Shot("rest", lambda _: "/api/v1/docs/", whole=False, awaits=".opblock", kept=False, first=True),
)


@pytest.fixture
def afternoon(transactional_db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[scene.Scene]:
    """The scene at a time that stands still, with the same identifiers each time."""
    with time_machine.travel(NOW, tick=False), monkeypatch.context() as patch:
        _same_names(patch, 20260904)
        installation_claim()
        # much is judged by the database's clock, which time_machine does not stop
        monkeypatch.setattr("wms2.runtime.clock.now", timezone.now)
        monkeypatch.setattr("wms2.runtime.clock.in_sql", lambda: Value(NOW, DateTimeField()))
        compose_anew(monkeypatch)
        built = scene_week.build(tmp_path)
        alerts_check(nullcontext)
        patch.undo()
        yield built


def _same_names(patch: pytest.MonkeyPatch, seed: int) -> None:
    patch.setattr("tests.support.rows._numbers", itertools.count(4711))
    patch.setattr("uuid.os", SimpleNamespace(urandom=random.Random(seed).randbytes))


def _taken(opened: Window, shot: Shot, built: scene.Scene, place: Path) -> Path:
    opened.go(shot.path(built))
    opened.page.locator(shot.awaits).first.wait_for()
    assert opened.scrolled == 0, "it begins elsewhere than at its top"
    if shot.opens:
        opened.page.locator(shot.opens).first.click()
    opened.hide_place(str(place), SHOWN_PLACE)
    made = Path(os.environ["WMS2_STATE_DIR"]) / ("screenshots" if shot.kept else "others") / f"{shot.name}.png"
    made.parent.mkdir(exist_ok=True)
    if shot.part:
        opened.page.locator(shot.part).screenshot(path=made, animations="disabled", caret="hide")
    else:
        opened.page.screenshot(path=made, full_page=shot.whole, animations="disabled", caret="hide")
    return made


@pytest.mark.dear("what a person sees, of each kind of page one")
def test_pages_look_as_they_should(
    chromium: Browser, live_server: Any, afternoon: scene.Scene, operator: User, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    look_at([shot for shot in SHOTS if shot.first], chromium, live_server.url, afternoon, operator, tmp_path, subtests)


@pytest.mark.deep("tests/browser/test_screenshots.py::test_pages_look_as_they_should")
def test_every_page_looks_as_it_should(
    chromium: Browser, live_server: Any, afternoon: scene.Scene, operator: User, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    look_at(SHOTS, chromium, live_server.url, afternoon, operator, tmp_path, subtests)


def look_at(
    shots: Iterable[Shot],
    chromium: Browser,
    url: str,
    afternoon: scene.Scene,
    operator: User,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    for shot in shots:
        with subtests.test(shot.name), window(chromium, url, dark=shot.dark, width=shot.width) as opened:
            if shot.signed_in:
                opened.sign_in_as(operator)
            made = _taken(opened, shot, afternoon, tmp_path)
            assert opened.complaints == []
            assert opened.overflow <= 0, "the page is wider than the window"
            if shot.kept and not os.environ.get(RENEW):
                _assert_as_kept(made)


def _assert_as_kept(made: Path) -> None:
    kept = KEPT / made.name
    assert kept.exists(), f"there is no {kept}: run `make screenshots` and look at it"
    difference = compare(kept, made)
    assert difference.small, f"{made} is not like {kept}: {difference}. If it should be so: `make screenshots`"


@pytest.mark.skipif(bool(os.environ.get(RENEW)), reason="pictures are being renewed")
def test_every_picture_that_is_kept_is_made() -> None:
    assert {file.stem for file in KEPT.glob("*.png")} == {shot.name for shot in SHOTS if shot.kept}
