"""ConfigCache: documents and PSets in CouchDB's form, and CouchDB's refusals."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.support.simulator_world import World, config_document

DB = "reqmgr_config_cache"
ID = "0123456789abcdef0123456789abcdef"
PSET = b"import FWCore.ParameterSet.Config as cms\nprocess = cms.Process('GEN')\n"


def refusal(answer: requests.Response) -> tuple[int, str, str]:
    """Status, error and reason of a refusal."""
    body = answer.json()
    assert set(body) == {"error", "reason"}
    return answer.status_code, body["error"], body["reason"]


def stored(world: World) -> str:
    """A document with its PSet; returns its revision."""
    answer = world.couch("PUT", f"{DB}/{ID}", json=config_document(OUT=("GEN-SIM", "")))
    assert answer.status_code == 201
    assert answer.json()["ok"] is True
    path = f"{DB}/{ID}/configFile"
    answer = world.couch("PUT", path, params={"rev": answer.json()["rev"]}, data=PSET, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 201
    rev: str = answer.json()["rev"]
    return rev


def test_a_document_comes_with_revision_and_attachment_stub(world: World) -> None:
    rev = stored(world)
    answer = world.couch("GET", f"{DB}/{ID}")
    document = answer.json()
    assert (document["_id"], document["_rev"]) == (ID, rev)
    assert answer.headers["ETag"] == f'"{rev}"'
    assert answer.headers["Content-Type"] == "application/json"
    assert document["pset_tweak_details"]["process"]["OUT"]["dataset"] == {"dataTier": "GEN-SIM", "filterName": ""}
    stub = document["_attachments"]["configFile"]
    assert (stub["content_type"], stub["length"], stub["stub"], stub["revpos"]) == ("text/plain", len(PSET), True, 2)
    assert stub["digest"].startswith("md5-")


def test_the_pset_is_the_attachment_configfile(world: World) -> None:
    stored(world)
    answer = world.couch("GET", f"{DB}/{ID}/configFile")
    assert answer.content == PSET
    assert answer.headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"{DB}/nosuch", "missing"),
        (f"{DB}/nosuch/configFile", "missing"),
        (f"{DB}/{ID}/nosuch", "Document is missing attachment"),
        ("nosuch/anything", "Database does not exist."),
        ("nosuch", "Database does not exist."),
    ],
)
def test_what_is_not_there_answers_404(world: World, path: str, reason: str) -> None:
    stored(world)
    assert refusal(world.couch("GET", path)) == (404, "not_found", reason)


def test_a_write_without_the_current_revision_is_a_conflict(world: World) -> None:
    rev = stored(world)
    conflict = (409, "conflict", "Document update conflict.")
    assert refusal(world.couch("PUT", f"{DB}/{ID}", json={"type": "config"})) == conflict
    assert refusal(world.couch("PUT", f"{DB}/{ID}", json={"_rev": "1-abc"})) == conflict
    assert refusal(world.couch("PUT", f"{DB}/{ID}/configFile", data=PSET)) == conflict
    answer = world.couch("PUT", f"{DB}/{ID}", json={"_rev": rev, "type": "config"})
    assert answer.status_code == 201
    assert answer.json()["rev"].startswith("3-")
    assert world.couch("GET", f"{DB}/{ID}/configFile").content == PSET  # an update keeps the attachment


def test_a_deleted_document_says_so(world: World) -> None:
    rev = stored(world)
    assert world.couch("DELETE", f"{DB}/{ID}", params={"rev": rev}).json()["ok"] is True
    assert refusal(world.couch("GET", f"{DB}/{ID}")) == (404, "not_found", "deleted")
    assert world.couch("PUT", f"{DB}/{ID}", json={}).status_code == 201


@pytest.mark.parametrize(("data", "reason"), [(b"{", "invalid UTF-8 JSON"), (b"[1]", "Document must be a JSON object")])
def test_a_body_that_is_no_document_is_refused(world: World, data: bytes, reason: str) -> None:
    assert refusal(world.couch("PUT", f"{DB}/{ID}", data=data)) == (400, "bad_request", reason)


def test_databases_are_made_once(world: World) -> None:
    assert world.couch("GET", "_all_dbs").json() == [DB, "workqueue", "workqueue_inbox"]
    assert world.couch("PUT", "other").status_code == 201
    assert refusal(world.couch("PUT", "other"))[:2] == (412, "file_exists")
    assert world.couch("GET", "other").json() == {"db_name": "other", "doc_count": 0}
    assert world.couch("GET", "").json()["couchdb"] == "Welcome"


@pytest.mark.parametrize("by_post", [True, False])
def test_many_documents_by_their_keys(world: World, by_post: bool) -> None:
    stored(world)
    options: dict[str, Any] = {"params": {"include_docs": "true"}}
    if by_post:
        rows = world.couch("POST", f"{DB}/_all_docs", json={"keys": [ID, "nosuch"]}, **options).json()["rows"]
        assert rows[1] == {"key": "nosuch", "error": "not_found"}
    else:
        rows = world.couch("GET", f"{DB}/_all_docs", **options).json()["rows"]
    assert rows[0]["doc"]["_id"] == ID
