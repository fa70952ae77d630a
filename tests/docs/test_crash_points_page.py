"""``docs/crash-points.md`` names exactly the points at which the code can be killed."""

from __future__ import annotations

import re

from outputs_app.models import EffectKind
from tests.support.places import ROOT

PAGE = ROOT / "docs/crash-points.md"
CALL = re.compile(r'crash_point\(f?"([^"]+)"\)')


def in_the_code() -> set[str]:
    """Names as written; ``{effect.kind}`` stands for every kind of effect."""
    texts = [
        path.read_text() for app in ("wms2", "requests_app", "dags_app", "outputs_app") for path in (ROOT / app).rglob("*.py")
    ]
    return {name.replace("{effect.kind}", "<effect>") for text in texts for name in CALL.findall(text)}


def on_the_page() -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M))


def test_the_page_names_the_points_of_the_code_and_no_others():
    assert on_the_page() == in_the_code()
    assert "submit.called" in in_the_code()


def test_no_point_has_a_name_that_the_page_cannot_know():
    texts = [path.read_text() for app in ("requests_app", "dags_app", "outputs_app") for path in (ROOT / app).rglob("*.py")]
    calls = sum(len(re.findall(r"(?<!def )(?<!import )crash_point\(", text)) for text in texts)
    assert calls == sum(len(CALL.findall(text)) for text in texts)


def test_the_page_names_every_kind_of_effect():
    text = PAGE.read_text()
    listed = set(re.findall(r"`([a-z0-9_]+)`", text[text.rindex("`<effect>` is one of") :]))
    assert listed == set(EffectKind.values)
