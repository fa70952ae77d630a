"""All simulated services under one port: paths to services, health, and the simulator's own door for seeding."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.simulators.configcache import DEFAULT_DATABASE, ELEMENT, CouchService
from deploy.simulators.cric import CricService
from deploy.simulators.dbs.errors import DbsError
from deploy.simulators.dbs.service import BulkblocksMode, DbsService
from deploy.simulators.dqm import DqmService
from deploy.simulators.httpd import BadRequestBody, Request, Response, json_response, text_response
from deploy.simulators.reqmgr2.creation import Surroundings
from deploy.simulators.reqmgr2.others import Habits
from deploy.simulators.reqmgr2.service import ReqMgr2Service


@dataclass(frozen=True, slots=True)
class Inbox:
    """Of WMCore's global work queue, in CouchDB: a document by a request's name, and its elements in ``workqueue``."""

    couch: CouchService

    def add(self, name: str, team: str, *, pulled: bool) -> None:
        """As the queue takes it in and splits it into one element."""
        element = {"RequestName": name, "TeamName": team, "ParentQueueId": name, "ChildQueueUrl": None, "Status": "Available"}
        if pulled:
            element |= {"ChildQueueUrl": "http://vocms0000.cern.ch:5984", "Status": "Acquired"}
        self.couch.add("workqueue_inbox", name, {ELEMENT: {"RequestName": name, "TeamName": team, "Status": "Acquired"}})
        self.couch.add("workqueue", f"{name}-1", {ELEMENT: element})

    def __contains__(self, name: object) -> bool:
        return self.couch.find("workqueue_inbox", str(name)) is not None


class Application:
    """The services with their state in ``state_dir`` (one SQLite file each)."""

    def __init__(self, state_dir: Path, bulkblocks_mode: BulkblocksMode = "concurrent", habits: Habits | None = None) -> None:
        self.couch = CouchService(state_dir / "couchdb.sqlite")
        self.dbs = DbsService(state_dir / "dbs.sqlite", bulkblocks_mode)
        self.cric = CricService(state_dir / "cric.sqlite")
        self.dqm = DqmService(state_dir / "dqm")
        self.pileups: dict[str, dict[str, Any]] = {}  # MSPileup's documents by name; a restart forgets them
        around = Surroundings(
            find_config=lambda identifier: self.couch.find(DEFAULT_DATABASE, identifier),
            dataset_exists=self.dbs.dataset_exists,
            has_parents=self.dbs.has_parents,
            data_tiers=self.dbs.data_tiers,
        )
        self.reqmgr2 = ReqMgr2Service(state_dir / "reqmgr2.sqlite", around, Inbox(self.couch), habits or Habits())

    def handle(self, request: Request) -> Response:
        """Answer one request, whichever service it is for."""
        parts = request.segments()
        match parts:
            case ["reqmgr2", "data", *rest]:
                return self.reqmgr2.handle(request, rest)
            case ["wmstatsserver", "data", "protectedlfns"] if request.method in ("GET", "HEAD"):
                return json_response({"result": self.reqmgr2.protected_lfns()})
            case ["couchdb", *rest]:
                self.reqmgr2.move_on()
                return self.couch.handle(request, rest)
            case ["dbs", "prod", "global", "DBSReader", api]:
                return self.dbs.handle(request, "DBSReader", api)
            case ["dbs", "prod", "global", "DBSWriter", api]:
                return self.dbs.handle(request, "DBSWriter", api)
            case ["api", "cms", "site", "query"]:
                return self.cric.handle_sites(request)
            case ["api", "accounts", "user", "query"]:
                return self.cric.handle_people(request)
            case ["ms-pileup", "data", "pileup"]:
                found = self.pileups.get(dict(request.query).get("pileupName", ""))
                return json_response({"result": [found] if found else []})
            case ["dqm", server, *rest]:
                return self.dqm.handle(request, server, rest)
            case ["healthz"]:
                return json_response({"status": "ok"})
            case ["admin", "seed"]:
                return _admin(request, self._seed)
            case ["admin", "dbs-lock"]:
                return _admin(request, self._lock)
            case ["admin", "dqm"]:
                return _admin(request, self._servers)
            case ["admin", "reqmgr2"]:
                return _admin(request, self._habits)
            case _:
                return text_response(f"no simulated service at {request.path}\n", status=404)

    def _seed(self, seed: Any) -> dict[str, Any]:
        """POST /admin/seed: ``{dbs: {datasets: [{dataset, generate}]}, cric: {table: rows}, mspileup: [doc], reqmgr2: …}``."""
        if not isinstance(seed, dict) or set(seed) - {"dbs", "cric", "mspileup", "reqmgr2"}:
            raise ValueError("expected an object with some of: dbs, cric, mspileup, reqmgr2")
        done: dict[str, Any] = {}
        for record in seed.get("dbs", {}).get("datasets", []):
            done.setdefault("dbs", {})[record["dataset"]] = self.dbs.seed_generated(record)
        if "cric" in seed:
            done["cric"] = self.cric.replace_rows(seed["cric"])
        for document in seed.get("mspileup", []):
            self.pileups[document["pileupName"]] = document
            done["mspileup"] = done.get("mspileup", 0) + 1
        for document in seed.get("reqmgr2", {}).get("requests", []):
            self.reqmgr2.store.put({**document, "_id": document["RequestName"]})
            done["reqmgr2"] = done.get("reqmgr2", 0) + 1
        return done

    def _lock(self, body: Any) -> dict[str, Any]:
        """POST /admin/dbs-lock ``{locked: true|false}``: a fault. DBS's database refuses every write until it is opened again."""
        locked = body["locked"] is True
        self.dbs.storage.lock(locked=locked)
        return {"locked": locked}

    def _servers(self, body: Any) -> dict[str, Any]:
        """POST /admin/dqm ``{down: true|false}``: a fault. No DQM server takes anything."""
        self.dqm.down = body["down"] is True
        return {"down": self.dqm.down}

    def _habits(self, body: Any) -> dict[str, Any]:
        """POST /admin/reqmgr2: how others behave from now on (``reqmgr2.others.Habits``)."""
        self.reqmgr2.habits = self.reqmgr2.habits.changed(body)
        return asdict(self.reqmgr2.habits)

    def close(self) -> None:
        """Close all databases."""
        for storage in (self.couch.storage, self.dbs.storage, self.cric.storage, self.reqmgr2.store.storage):
            storage.close()


def _admin(request: Request, act: Callable[[Any], dict[str, Any]]) -> Response:
    """A POST to the simulator itself."""
    if request.method != "POST":
        return text_response("POST only\n", status=405)
    try:
        return json_response(act(json.loads(request.plain_body())))
    except (DbsError, ValueError, KeyError, TypeError, BadRequestBody) as error:
        return json_response({"problem": f"{type(error).__name__}: {error}"}, status=400)
