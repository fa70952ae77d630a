"""The switch of new work over REST."""

from __future__ import annotations

from rest_framework.test import APIClient

PLACE = "/api/v1/service/level"


def test_operators_switch_new_work_off_and_everybody_sees_it(operator: APIClient, reader: APIClient) -> None:
    assert operator.post(f"{PLACE}/stop-new-work", {"reason": "power cut at noon"}).status_code == 202
    assert operator.post(f"{PLACE}/stop-new-work", {"reason": "power cut at one"}).status_code == 202
    for address in (PLACE, "/api/v1/status"):
        body = reader.get(address).json()
        shown = body.get("service", body)
        assert shown["no_new_work"] == "new work is switched off by olga: power cut at one"
        assert (shown["level"], shown["stretch"]) == ("normal", 1.0)
    assert operator.post(f"{PLACE}/allow-new-work", {"reason": "done"}).json()["no_new_work"] == ""
    assert operator.post(f"{PLACE}/allow-new-work", {"reason": "done"}).status_code == 202
    assert reader.get("/api/v1/service/other").status_code == 404
