"""Cleanup at a site that stages out to two volumes: what counts in one of them is safe in the other, rests are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.payload_workbench import SITES, Workbench

HOME, OTHER = SITES["T1_US_FNAL"], SITES["T2_CH_CERN"]


@pytest.fixture
def unit(done_unit: Workbench) -> Workbench:
    """A unit that is merged."""
    assert done_unit.script("collect") == 0
    done_unit.process("merge", "merge")
    return done_unit


def described(bench: Workbench, other: Path) -> None:
    """The site has a second volume, which may be the first one by another name."""
    place = bench.root / "siteconf" / bench.site
    volumes = []
    for rse, prefix in ((HOME, bench.storage()), (OTHER, other)):
        protocols = [{"protocol": "file", "access": "site-rw", "prefix": str(prefix)}]
        volumes.append({"site": bench.site, "volume": rse, "protocols": protocols, "type": "DISK", "rse": rse})
    (place / "storage.json").write_text(json.dumps(volumes))
    (place / "JobConfig").mkdir()
    methods = "".join(f'<method volume="{rse}" protocol="file"/>' for rse in (OTHER, HOME))
    text = f'<site-local-config><site name="{bench.site}"><stage-out>{methods}</stage-out></site></site-local-config>'
    (place / "JobConfig/site-local-config.xml").write_text(text)


def files_at(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def merged(bench: Workbench) -> list[Path]:
    return sorted(bench.stored(file["lfn"]) for each in bench.read("merge_output.json")["outputs"] for file in each["files"])


def test_a_merged_file_is_safe_where_two_rses_are_one_storage(unit: Workbench) -> None:
    described(unit, unit.storage())
    assert unit.run("cleanup", "cleanup").value == 0
    assert files_at(unit.storage()) == merged(unit)


def test_what_a_copy_left_before_it_went_on_to_another_volume_is_removed(unit: Workbench) -> None:
    other = unit.root / "other"
    described(unit, other)
    (journal,) = unit.storage().rglob("*.merge_journals/*.json")
    (lfn,) = json.loads(journal.read_text())["files"]
    for path, data in ((other / journal.relative_to(unit.storage()), journal.read_bytes()), (Path(f"{other}{lfn}"), b"cut")):
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    assert unit.run("cleanup", "cleanup").value == 0
    assert files_at(other) == [] and files_at(unit.storage()) == merged(unit)


def test_a_volume_that_refuses_fails_the_attempt_when_the_other_one_is_clean(unit: Workbench) -> None:
    other = unit.root / "other"
    described(unit, other)
    (journal,) = unit.storage().rglob("*.merge_journals/*.json")
    refused = other / journal.relative_to(unit.storage()).parent
    refused.parent.mkdir(parents=True)
    refused.mkdir(mode=0)
    done = unit.run("cleanup", "cleanup")
    refused.chmod(0o755)
    assert done.report["exit_code"] == 60311 and f"{OTHER}: " in done.report["error_message"]
    assert files_at(unit.storage()) == merged(unit)
