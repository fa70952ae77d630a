"""What becomes of the outputs of a request at several sites, one of whose units is given up, on the real stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rucio.common.exception import RequestNotFound

from dags_app.models import DAG, WorkUnit
from dags_app.payload.contract import documents, names
from outputs_app.models import SETTLED_EFFECT, BlockStatus, Effect, OutputFile, ProcessingBlock
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort
from tests.support.faults import fault
from tests.support.inputs import RSES, seeded_input, small_reprocessing
from tests.support.outcomes import assert_aborted, ended, imported, status, storage
from tests.support.rucio import SCOPE, plain_client, rucio_home
from tests.support.stack import worker
from wms2.adapters import factory
from wms2.conf import conf

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
#: Units of one job; the request is held when one of them has failed.
SETTINGS = {"jobs_per_work_unit": 1, "error_max_rescue_attempts": 0, "error_same_units": 0}


def owed(request: Request) -> bool:
    return Effect.objects.filter(request=request).exclude(state__in=SETTLED_EFFECT).exists()


@fault(
    "outputs at two sites, one unit given up",
    done="of three units at three sites one cannot read its input, the merge of another fails once; the request is aborted",
    spec="wms2-spec 4.7; ADR 0017, 0016",
    afterwards="no transfer for any source rule; one DBS block at each site with exactly the files done there; ARCHIVED",
)
def test_blocks_at_two_sites_without_a_unit_are_registered_once_and_nothing_is_copied(ready: None, tmp_path: Path) -> None:
    request = imported(small_reprocessing(seeded_input(tmp_path, events=10)))
    crash = {"WMS2_CRASH_AT": "plan.recorded", "WMS2_CRASH_MARK": str(tmp_path / "mark")}
    with worker(**crash, **SETTINGS) as running:
        running.wait(lambda: running.was_killed, seconds=120)
        dag = DAG.objects.get(workflow__request=request)
        unreadable, merging, _ = (unit.name for unit in WorkUnit.objects.filter(dag=dag).order_by("index"))
        place = Path(dag.submit_dir)
        for job in json.loads((place / unreadable / "unit.json").read_text())["jobs"]:
            for file in job["files"]:
                for rse in RSES:
                    if storage(rse, file["lfn"]).exists():
                        storage(rse, file["lfn"]).write_bytes(b"not a ROOT file")
        journals = names.journals_lfn(documents.read_job(place), documents.read_unit(place / merging), "merge")
        broken = [storage(rse, journals) for rse in RSES]
        for path in broken:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to("nowhere")  # nothing can be written there until it is gone
        running.start()
        running.wait(lambda: (place / merging / "merge.attempts.jsonl").exists() or ended(request), seconds=240)
        for path in broken:
            path.unlink()
        running.wait(lambda: ended(request), seconds=240)
        assert status(request) == RequestStatus.HELD
        request_abort(request=request, actor="tester", reason="the rest is not wanted")
        running.wait(lambda: not owed(request), seconds=240)
    assert_aborted(request)
    assert len((place / merging / "merge.attempts.jsonl").read_text().splitlines()) == 2, "its merge was tried twice"
    client = plain_client(rucio_home().parent / "admin")
    for dataset in request.workflow.output_datasets.all():
        places = dict(ProcessingBlock.objects.filter(dataset=dataset).values_list("dbs_block_name", "origin_rse"))
        assert len(set(places.values())) == len(places) == 2
        assert {found.block_name for found in factory.dbs().blocks(dataset.name)} == places.keys()
    for block in ProcessingBlock.objects.filter(workflow=request.workflow):
        files = list(OutputFile.objects.filter(block=block))
        placed = {file.rse for file in files}
        assert (block.status, block.total_work_units, placed) == (BlockStatus.ARCHIVED, 1, {block.origin_rse})
        lfns = sorted(file.lfn for file in files)
        in_dbs = factory.dbs().block(block.dbs_block_name)
        assert in_dbs is not None
        assert (in_dbs.file_count, in_dbs.is_open) == (len(files), False)
        assert sorted(file.lfn for file in factory.dbs().block_files(block.dbs_block_name)) == lfns
        assert sorted(row["name"] for row in client.list_content(SCOPE, block.dbs_block_name)) == lfns
        rule = factory.rucio().rule(block.source_rule_id)
        assert (rule.state, rule.rse_expression, rule.locks_ok) == ("OK", block.origin_rse, len(files))
        for file in files:
            for rse in RSES:
                with pytest.raises(RequestNotFound):
                    client.list_request_by_did(file.lfn, rse, SCOPE)
    found = factory.rucio().rules_with_comment(f"wms2 {conf().instance} {request.request_name}")
    blocks = ProcessingBlock.objects.filter(workflow=request.workflow)
    known = {rule for each in blocks.values_list("source_rule_id", "tape_rule_id") for rule in each}
    assert {rule.rule_id for rule in found if rule.expires_at is None} == known
