"""Pileup against the database: read once from the catalogues, kept for all requests, whole or not at all, and put into DAGs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dags_app.payload.contract.documents import Pileup
from dags_app.planning.specs import WorkflowSpec
from requests_app.lease import Evaluation, evaluating
from requests_app.models import PileupBlock, PileupDataset, Request, RequestStatus
from requests_app.work import pileup, planner
from requests_app.work.pileup import pileup_resolve
from requests_app.work.planner import round_plan
from sites_app.models import Site, SiteRse
from tests.support import simulator_world
from tests.support.rows import generation_spec, workflow_row
from wms2.adapters import factory
from wms2.adapters.rucio_types import LockRow
from wms2.adapters.types import BlockInfo, DatasetInfo, DbsFileInfo
from wms2.conf import conf
from wms2.errors import NotFoundInService, PlanningRefused, ServiceUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

PREMIX = "/Neutrino/Premix-v1/PREMIX"


class Catalogues:
    """DBS and Rucio with one dataset: block -> (files, RSE -> whether the block is whole there)."""

    def __init__(self) -> None:
        self.blocks_of: dict[str, dict[str, tuple[int, dict[str, bool]]]] = {
            PREMIX: {
                f"{PREMIX}#b": (2, {"T1_US_FNAL_Disk": True, "T1_US_FNAL_Tape": True}),
                f"{PREMIX}#a": (3, {"T1_US_FNAL_Disk": True, "T2_CH_CERN": True}),
                f"{PREMIX}#tape": (4, {"T1_US_FNAL_Tape": True, "T2_CH_CERN": False}),
                f"{PREMIX}#empty": (0, {"T2_CH_CERN": True}),
            }
        }
        self.readings = 0
        self.access_type, self.invalid = "VALID", set[str]()
        self.custom: dict[tuple[str, str], set[str]] = {}
        self.breaks_at: str | None = None
        self.ruled: dict[str, list[str]] = {}  # block -> RSEs at which rules keep it

    def blocks_kept(self, blocks: list[str]) -> dict[str, list[LockRow]]:
        rows = {name: self.ruled.get(name, []) for name in blocks}
        return {name: [LockRow(name=name, rse=rse, rule_id="1", state="OK") for rse in rses] for name, rses in rows.items()}

    def tapes(self) -> set[str]:
        return {"T1_US_FNAL_Tape"}

    def dataset(self, name: str) -> DatasetInfo | None:
        return DatasetInfo(name, self.access_type, "mc") if name in self.blocks_of else None

    def blocks(self, dataset: str) -> Iterator[BlockInfo]:
        self.readings += 1
        for name, (files, _) in self.blocks_of[dataset].items():
            yield BlockInfo(name, False, files, files, "T1_US_FNAL_Disk")

    def files(self, name: str, valid_only: bool = True) -> Iterator[DbsFileInfo]:
        count, _ = self.blocks_of[name.partition("#")[0]][name]
        for number in reversed(range(count)):
            lfn = f"/store/mc/{name.partition('#')[2]}{number}.root"
            yield DbsFileInfo(lfn, name, 1, lfn not in self.invalid, 10, "0")

    def valid_lfns(self, name: str, operation: str = "") -> Iterator[str]:
        blocks = [name] if "#" in name else self.blocks_of[name]
        return (file.lfn for block in blocks for file in self.files(block) if file.is_valid)

    def blocks_in(self, container: str, scope: str) -> set[str]:
        if (scope, container) not in self.custom:
            raise NotFoundInService("rucio", "blocks_in", f"no {container}")
        return self.custom[scope, container]

    def block_locations(self, blocks: list[str]) -> dict[str, dict[str, bool]]:
        if self.breaks_at in blocks:
            raise ServiceUnavailable("rucio", "block_locations", "no answer")
        return {name: self.blocks_of[name.partition("#")[0]][name][1] for name in blocks}


@pytest.fixture(name="catalogues", autouse=True)
def _catalogues(monkeypatch: pytest.MonkeyPatch) -> Catalogues:
    for name, rse in {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN"}.items():
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=rse, seen_at="2026-01-01T00:00:00Z")
    catalogues = Catalogues()
    monkeypatch.setattr(factory, "dbs", lambda: catalogues)
    monkeypatch.setattr(factory, "rucio", lambda: catalogues)
    return catalogues


def mixing(dataset: str = PREMIX, **fields: Any) -> WorkflowSpec:
    spec = generation_spec(**fields)
    return replace(spec, steps=(replace(spec.steps[0], pileup=(Pileup("mc", dataset),)),))


def test_a_dataset_is_resolved_to_the_blocks_that_lie_on_disk_whole() -> None:
    (found,) = pileup_resolve(mixing())

    assert (found.dataset, found.kind) == (PREMIX, "mc")
    assert [(block.name, block.sites, block.events) for block in found.blocks] == [
        (f"{PREMIX}#a", ("T1_US_FNAL", "T2_CH_CERN"), 30),
        (f"{PREMIX}#b", ("T1_US_FNAL",), 20),
    ]
    assert found.blocks[1].files == ("/store/mc/b0.root", "/store/mc/b1.root")


@pytest.fixture
def mspileup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """MSPileup, and what it says of the dataset."""
    with simulator_world.running(tmp_path / "simulators") as found:
        monkeypatch.setenv("WMS2_MSPILEUP_URL", f"{found.url}/ms-pileup/data")
        conf.cache_clear()
        factory.mspileup.cache_clear()
        document = {"pileupName": PREMIX, "pileupType": "premix", "active": True, "currentRSEs": [], "customName": ""}
        yield lambda **said: found.application.pileups.update({PREMIX: document | said})
    factory.mspileup.cache_clear()


def test_it_is_mixed_only_where_mspileup_keeps_it(mspileup) -> None:
    mspileup(currentRSEs=["T2_CH_CERN", "T1_US_FNAL_Tape"])
    (found,) = pileup_resolve(mixing())
    assert [(block.name, block.sites) for block in found.blocks] == [(f"{PREMIX}#a", ("T2_CH_CERN",))]


def test_without_mspileup_only_copies_count_that_a_rule_keeps(catalogues: Catalogues) -> None:
    """Others only wait to be removed; where no rule says anything, as in a test's Rucio, every copy counts."""
    catalogues.ruled = {f"{PREMIX}#a": ["T2_CH_CERN"], f"{PREMIX}#b": ["T1_US_FNAL_Tape"], f"{PREMIX}#tape": ["T2_CH_CERN"]}
    (found,) = pileup_resolve(mixing())
    assert [(block.name, block.sites) for block in found.blocks] == [(f"{PREMIX}#a", ("T2_CH_CERN",))]


def test_a_rule_that_keeps_it_on_tape_says_nothing_of_its_copies_on_disk(catalogues: Catalogues) -> None:
    catalogues.ruled = {f"{PREMIX}#tape": ["T1_US_FNAL_Tape"]}
    (found,) = pileup_resolve(mixing())
    assert [(block.name, block.sites) for block in found.blocks] == [
        (f"{PREMIX}#a", ("T1_US_FNAL", "T2_CH_CERN")),
        (f"{PREMIX}#b", ("T1_US_FNAL",)),
    ]


def test_copies_on_disk_that_no_rule_keeps_are_named_in_the_refusal(catalogues: Catalogues) -> None:
    """The one rule there is keeps a copy that is not whole."""
    catalogues.ruled = {f"{PREMIX}#tape": ["T2_CH_CERN"]}
    with pytest.raises(PlanningRefused, match="on disk at T1_US_FNAL, T2_CH_CERN, but no rule keeps it there; have one made"):
        pileup_resolve(mixing())


def test_copies_on_disk_that_mspileup_does_not_keep_are_named_in_the_refusal(mspileup) -> None:
    mspileup(currentRSEs=["T1_US_FNAL_Tape"])
    with pytest.raises(PlanningRefused, match="on disk at T1_US_FNAL, T2_CH_CERN, but MSPileup does not keep it there; have its"):
        pileup_resolve(mixing())


def test_of_a_part_that_is_kept_no_other_block_is_mixed(mspileup, catalogues: Catalogues) -> None:
    """What is not in it lies about until its room is needed."""
    mspileup(currentRSEs=["T1_US_FNAL_Disk"], customName=f"{PREMIX}-V1")
    with pytest.raises(ServiceUnavailable, match=f"Rucio does not have {PREMIX}-V1 yet"):
        pileup_resolve(mixing())
    catalogues.custom = {("group.wmcore", f"{PREMIX}-V1"): {f"{PREMIX}#b"}}
    (found,) = pileup_resolve(mixing())
    assert [(block.name, block.sites) for block in found.blocks] == [(f"{PREMIX}#b", ("T1_US_FNAL",))]


@pytest.mark.parametrize("known", [True, False])
def test_pileup_that_nobody_keeps_is_refused_also_when_it_was_read_before(mspileup, known: bool) -> None:
    if known:
        mspileup(currentRSEs=["T1_US_FNAL_Disk"])
        pileup_resolve(mixing())
        mspileup(currentRSEs=["T1_US_FNAL_Disk"], active=False)
    with pytest.raises(PlanningRefused, match="it is not active; have it" if known else "MSPileup does not know it; have it"):
        pileup_resolve(mixing())


def test_a_request_without_pileup_asks_nobody(catalogues: Catalogues) -> None:
    assert pileup_resolve(generation_spec()) == ()
    assert catalogues.readings == 0


def test_what_was_read_serves_every_request_until_it_is_too_old(catalogues: Catalogues) -> None:
    first = pileup_resolve(mixing())
    catalogues.blocks_of[PREMIX][f"{PREMIX}#b"] = (2, {"T1_US_FNAL_Tape": True})

    assert pileup_resolve(mixing("/Neutrino/Premix-v1/PREMIX", request_name="another")) == first
    assert catalogues.readings == 1

    PileupDataset.objects.update(resolved_at=timezone.now() - timedelta(seconds=pileup.PILEUP_CACHE_SECONDS + 1))
    (again,) = pileup_resolve(mixing())
    assert [block.name for block in again.blocks] == [f"{PREMIX}#a"]
    assert set(PileupBlock.objects.values_list("reading", flat=True)) == {PileupDataset.objects.get().reading}


def test_a_file_that_became_invalid_is_mixed_by_no_further_round(catalogues: Catalogues) -> None:
    pileup_resolve(mixing())
    catalogues.invalid.add("/store/mc/b0.root")
    (again,) = pileup_resolve(mixing())
    assert [block.files for block in again.blocks if block.name.endswith("#b")] == [("/store/mc/b1.root",)]
    assert catalogues.readings == 2


@pytest.mark.parametrize("known", [True, False])
def test_pileup_that_is_not_live_is_refused_also_when_it_was_read_before(catalogues: Catalogues, known: bool) -> None:
    if known:
        pileup_resolve(mixing())
    catalogues.access_type = "INVALID"
    with pytest.raises(PlanningRefused, match=rf"pileup {PREMIX}: it is INVALID in DBS"):
        pileup_resolve(mixing())


def test_a_file_that_becomes_invalid_between_two_calls_of_one_reading(
    catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = catalogues.block_locations

    def meanwhile(blocks: list[str]) -> dict[str, dict[str, bool]]:
        catalogues.invalid.add("/store/mc/a1.root")
        return locations(blocks)

    monkeypatch.setattr(catalogues, "block_locations", meanwhile)
    (found,) = pileup_resolve(mixing())
    assert "/store/mc/a1.root" not in [lfn for block in found.blocks for lfn in block.files]


def test_pileup_that_stops_being_live_while_it_is_read_does_not_count(
    catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = catalogues.block_locations

    def meanwhile(blocks: list[str]) -> dict[str, dict[str, bool]]:
        catalogues.access_type = "INVALID"
        return locations(blocks)

    monkeypatch.setattr(catalogues, "block_locations", meanwhile)
    with pytest.raises(PlanningRefused, match="INVALID"):
        pileup_resolve(mixing())
    assert PileupDataset.objects.get().resolved_at is None


def test_a_reading_that_breaks_off_changes_nothing(catalogues: Catalogues) -> None:
    catalogues.breaks_at = f"{PREMIX}#tape"
    with pytest.raises(ServiceUnavailable):
        pileup_resolve(mixing())
    assert PileupDataset.objects.get().resolved_at is None
    assert PileupBlock.objects.count() == 2

    catalogues.breaks_at = None
    assert len(pileup_resolve(mixing())[0].blocks) == 2
    assert PileupBlock.objects.count() == 3, "what the broken reading left is gone"


def test_of_two_readings_at_once_a_whole_one_counts(catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second planner reads and ends while the first is between two blocks: the first one's rest must not count."""
    locations, nested = catalogues.block_locations, []

    def meanwhile(blocks: list[str]) -> dict[str, dict[str, bool]]:
        if blocks == [f"{PREMIX}#a"] and not nested:
            nested.append(True)
            nested.append(pileup_resolve(mixing()))
        return locations(blocks)

    monkeypatch.setattr(catalogues, "block_locations", meanwhile)

    (found,) = pileup_resolve(mixing())

    assert [block.name for block in found.blocks] == [f"{PREMIX}#a", f"{PREMIX}#b"]
    assert nested[1] == (found,)


@pytest.mark.parametrize(
    ("blocks", "says"),
    [(None, "DBS has no such dataset"), ({}, "DBS has no valid file"), ({f"{PREMIX}#e": (0, {})}, "DBS has no valid file")],
)
def test_pileup_that_dbs_cannot_name_is_refused(catalogues: Catalogues, blocks: Any, says: str) -> None:
    if blocks is None:
        del catalogues.blocks_of[PREMIX]
    else:
        catalogues.blocks_of[PREMIX] = blocks

    with pytest.raises(PlanningRefused, match=rf"pileup {PREMIX}: {says}.*; correct MCPileup"):
        pileup_resolve(mixing())


def _plan(spec: WorkflowSpec, monkeypatch: pytest.MonkeyPatch, submit_root: Path) -> Path:
    settings = planner.conf().model_copy(update={"submit_root": submit_root})
    monkeypatch.setattr(planner, "conf", lambda: settings)
    workflow = workflow_row(spec=spec)
    Request.objects.filter(pk=workflow.request.pk).update(status=RequestStatus.PLANNING)
    with evaluating(workflow.request.pk, owner="test") as evaluation:
        assert isinstance(evaluation, Evaluation)
        dag = round_plan(evaluation)
    assert dag is not None
    return Path(dag.submit_dir)


def test_a_planned_dag_has_the_files_and_lands_where_they_are(
    catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalogues.blocks_of[PREMIX][f"{PREMIX}#a"] = (3, {"T1_US_FNAL_Disk": True})

    directory = _plan(mixing(), monkeypatch, tmp_path)

    document = json.loads((directory / "pileup.json").read_text())
    assert sorted(document["datasets"][PREMIX]["blocks"]) == [f"{PREMIX}#a", f"{PREMIX}#b"]
    assert "pileup.json" not in (directory / "SHA256SUMS").read_text(), "it is written anew with each submission"
    assert 'VARS landing sites="T1_US_FNAL"' in (directory / "mg_000000" / "group.dag").read_text()


def test_pileup_elsewhere_refuses_the_plan_with_the_reason(
    catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in catalogues.blocks_of[PREMIX]:
        catalogues.blocks_of[PREMIX][name] = (3, {"T1_US_FNAL_Disk": True})

    with pytest.raises(PlanningRefused, match=r"on disk at: T1_US_FNAL\)"):
        _plan(mixing(site_whitelist=("T2_CH_CERN",)), monkeypatch, tmp_path)
