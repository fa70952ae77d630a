"""Documents that the demo's simulated world knows the needs of."""

from __future__ import annotations

from deploy.stack import demo
from tests.support.places import ROOT


def test_every_document_of_the_demo_is_run_or_furnished() -> None:
    known = {*demo.REQUESTS, *(f"deploy/demo/requests/{name}.json" for name in demo.EXAMPLES)}
    assert known == {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/demo/requests").glob("*.json")}


def test_the_one_that_is_imported_as_adaptive_is_run() -> None:
    assert f"deploy/demo/requests/{demo.ADAPTIVE}.json" in demo.REQUESTS
