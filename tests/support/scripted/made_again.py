"""What tests of lost files share: merged files that hold pieces by chance, requests that read each other, and what must hold when
all is made again: every piece is in one valid file of each output, here and outside.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.packs import files_of
from dags_app.payload.contract import layout
from dags_app.planning import lumis
from dags_app.services.claims import claims_of, pieces_of
from outputs_app.models import OutputDataset, OutputFile, Validity
from requests_app.models import Request, Workflow
from requests_app.selectors.account import stored_ledger
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from tests.support.scripted import dagman, documents
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.world import World
from wms2.adapters.types import DbsFile

#: Several jobs a unit, several units a DAG, small blocks.
WORLD = {"JOBS_PER_WORK_UNIT": "4", "MAX_WORK_UNITS_PER_DAG": "9", "BLOCK_TARGET_BYTES": "3000000",
         "GENERATION_EXCESS_FACTOR": "10"}  # fmt: skip
#: Where a process may die on the way of a removal.
POINTS = (
    "files_invalidate.claimed", "files_invalidate.called", "files_invalidate.recorded", "cut.claimed", "cut.recorded",
)  # fmt: skip


class Merges:
    """Deals the jobs of each unit out to merged files by chance, for each output anew, and says so in the manifest."""

    def __init__(self) -> None:
        self.seed, self.tells = 0, True

    def write(self, directory: Path, unit: str, fence: int, account: dagman.Account) -> None:
        _write_manifest(directory, unit, fence, account)
        path = directory / unit / layout.MANIFEST_FILE
        manifest, asked = json.loads(path.read_text()), json.loads((directory / unit / layout.UNIT_FILE).read_text())
        chance = random.Random(f"{self.seed} {json.loads((directory / layout.JOB_FILE).read_text())['round']} {unit}")
        before: list[tuple[str, set[str]]] = []
        for output in manifest["outputs"]:
            (whole,) = output["files"]
            dealt = self._deal(chance, [job["node"] for job in manifest["jobs"]])
            output["files"] = []
            for number, nodes in enumerate(dealt):
                jobs = [job["processed"] for job in manifest["jobs"] if job["node"] in nodes]
                made = [job["generate"] for job in asked["jobs"] if job["node"] in nodes and job["generate"]]
                file = self._file(whole["lfn"].replace(".root", f"-{number}.root"), jobs, made)
                read = {each["lfn"] for job in jobs for each in job["files"]}
                file["parents"] = sorted(lfn for lfn, theirs in before if theirs & set(nodes)) or sorted(read)
                output["files"].append(file)
            before = [(file["lfn"], set(nodes)) for file, nodes in zip(output["files"], dealt, strict=True)]
            if not self.tells:
                for file in output["files"]:
                    del file["pieces"]
        path.write_text(json.dumps(manifest | {"schema": "wms2.manifest/1.1" if self.tells else "wms2.manifest/1"}))

    def _deal(self, chance: random.Random, nodes: list[str]) -> list[list[str]]:
        left, files = chance.sample(nodes, len(nodes)), []
        while left:
            size = chance.randint(1, len(left))
            files.append(left[:size])
            left = left[size:]
        return files

    def _file(self, lfn: str, jobs: Sequence[dict[str, Any]], made: Sequence[dict[str, Any]]) -> dict[str, Any]:
        held = lumis.from_intervals((int(run), a, b) for job in jobs for run, pairs in job["lumis"].items() for a, b in pairs)
        events = sum(job["events"] for job in jobs)
        return {
            "lfn": lfn, "size_bytes": max(1, events * dagman.BYTES_PER_EVENT), "adler32": "0000000a", "events": events,
            "lumis": {str(run): [[lumi, 10] for a, b in spans for lumi in range(a, b + 1)] for run, spans in held.items()},
            "pieces": {
                "generated": [{key: each[key] for key in ("run", "first_event", "last_event")} for each in made],
                "files": [file for job in jobs for file in job["files"]],
                "lumis": lumis.to_json(held),
            },
        }  # fmt: skip


_write_manifest = dagman.write_manifest


def document(world: World, way: str, seed: int, events: int) -> dict[str, Any]:
    """Two kept outputs, from scratch or over an input."""
    chain = documents.generation(events)
    if way == "generated":
        return chain
    chance = random.Random(seed)
    source = world.source(f"{way}{seed}", *(chance.choice((40, 90, 250)) for _ in range(6)))
    splitting = {
        "events": {"SplittingAlgo": "EventBased", "EventsPerJob": 50},
        "lumis": {"SplittingAlgo": "LumiBased", "LumisPerJob": 3},
        "files": {"SplittingAlgo": "FileBased", "FilesPerJob": 1},
    }[way]
    first = {"StepName": "Gen", "ConfigCacheID": chain["Step1"]["ConfigCacheID"], "InputDataset": source, **splitting}
    return {**chain, "Step1": first}


def fresh(request: Request) -> Request:
    return Request.objects.select_related("workflow").get(pk=request.pk)


def valid(request: Request) -> list[OutputFile]:
    return list(OutputFile.objects.filter(block__workflow__request=request, validity=Validity.VALID).order_by("lfn"))


def pieces_in(file: OutputFile) -> set[tuple[Any, ...]]:
    """Single events and lumis, by the manifest."""
    with files_of(file.unit.dag.submit_dir, f"{file.unit.name}/{layout.MANIFEST_FILE}") as place:
        manifest = json.loads((place / file.unit.name / layout.MANIFEST_FILE).read_text())
    (reported,) = [each["pieces"] for output in manifest["outputs"] for each in output["files"] if each["lfn"] == file.lfn]
    found: set[tuple[Any, ...]] = {
        ("made", at) for each in reported["generated"] for at in range(each["first_event"], each["last_event"] + 1)
    }
    by_lumi = any(claim.kind == WorkUnitClaim.KIND_RUN_LUMIS for claim in file.unit.claims.all())
    for each in () if by_lumi else reported["files"]:
        first = each.get("first_event") or 0
        found |= {(each["lfn"], at) for at in range(first, first + max(1, each["events"]))}
    found |= {("lumi", run, at) for run, spans in reported["lumis"].items() for a, b in spans for at in range(a, b + 1)}
    return found


def account(request: Request) -> Ledger:
    ledger = ledger_check(ledger_of(Workflow.objects.get(request=request)))
    kept, present = stored_ledger(fresh(request), Workflow.objects.get(request=request))
    assert kept == ledger or not present
    return ledger


def assert_whole(world: World, request: Request) -> None:
    """All that was asked for is in one valid file of each output, here and outside; what was removed is in none."""
    ledger = account(request)
    assert not ledger.work_left
    files, units = valid(request), WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.DONE)
    claimed = Counter[tuple[Any, ...]]()
    for claims in claims_of([unit.pk for unit in units]).values():
        for kind, of, first, last in pieces_of(claims):
            name = {0: ("made",), 1: (of,)}.get(kind, ("lumi", of))
            claimed.update((*name, at) for at in range(first, last + 1))
    assert max(claimed.values()) == 1
    for dataset in request.workflow.output_datasets.all():
        mine = [file for file in files if file.dataset_id == dataset.pk]
        held = Counter(piece for file in mine for piece in pieces_in(file))
        by_claim = {piece for piece in held if piece[0] != "lumi"} | ({p for p in held if p[0] == "lumi"} & claimed.keys())
        assert by_claim == claimed.keys()
        assert all(held[piece] == 1 for piece in claimed)
    outside = {lfn for block in world.dbs.registered.values() for lfn in block.files} - world.dbs.invalid
    ours = set(OutputFile.objects.filter(block__workflow__request=request).values_list("lfn", flat=True))
    assert outside & ours == {file.lfn for file in files}
    in_rucio = {lfn for block in world.rucio.held.values() for lfn in block.files}
    assert in_rucio & ours == {file.lfn for file in files}
    assert {lfn for rse in {file.rse for file in files} for lfn in world.rucio.kept_at(rse)} & ours == {
        file.lfn for file in files
    }
    if ledger.all_files == 0:
        assert ledger.done_events == ledger.all_events
    if ledger.by_lumi:
        assert ledger.done_lumis == ledger.all_lumis - ledger.excluded_lumis  # those of files that were replaced


def published(world: World, request: Request) -> str:
    """The request's last dataset as others read it: the valid files that DBS has now."""
    name = str(OutputDataset.objects.filter(workflow__request=request).latest("pk").name)
    blocks: dict[str, list[SourceFile]] = {}
    for block, held in ((block, held) for block, held in world.dbs.registered.items() if held.dataset == name):
        valid_now = [(lfn, file) for lfn, file in held.files.items() if lfn not in world.dbs.invalid]
        blocks[block] = [SourceFile(lfn, file.events, 1, *_lumis(file)) for lfn, file in valid_now]
    world.sources[name] = Source(blocks, dict.fromkeys(blocks, ("T2_CH_CERN",)))
    return name


def _lumis(file: DbsFile) -> tuple[tuple[tuple[int, int], ...], tuple[str, ...], tuple[int | None, ...]]:
    """Its lumis, no parents, the events of each lumi."""
    found = [((int(run), lumi), events) for run, pairs in file.lumis.items() for lumi, events in pairs]
    return tuple(pair for pair, _ in found), (), tuple(events for _, events in found)
