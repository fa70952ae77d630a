"""The comparison of one request with DBS and Rucio: calls, statements and CPU, where nothing differs, and where much does.

Blocks and files are in the stack's DBS simulator and its real Rucio, 500 files a block (``BENCH_FILES`` in all). Rules are not:
100,000 of them take Rucio a quarter of an hour. The one call that lists them is answered here with rows as Rucio sends them, and
they are parsed as Rucio's are. CPU is that of this process and of its PostgreSQL backend.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from typing import Any

from bench.costs import Cost, costs

FILES, PER_BLOCK, DISK = 100_000, 500, "T2_CH_CERN"
#: Of so many files one differs in DBS, the second time.
DIFFERS_EVERY = 100


def main() -> None:
    """Print a table."""
    import django

    os.environ.setdefault("WMS2_RECONCILE_HOURS", "24")
    django.setup()
    from django.core.management import call_command

    from outputs_app.checks.reconciliation.services import comparisons_ask
    from outputs_app.models import Drift, OutputFile

    call_command("migrate", verbosity=0)
    number = int(os.environ.get("BENCH_FILES", FILES))
    begun = time.monotonic()
    dataset = _registered(number)
    print(f"{number} files in {number // PER_BLOCK} blocks registered in {time.monotonic() - begun:.0f} s", flush=True)
    print(
        f"{'comparison':>12} {'s':>6} {'calls':>6} {'statements':>10} {'worker s':>9} {'backend s':>9} {'rows':>6} {'turns':>6}"
    )
    for name in ("all well", "1 % differs", "the same"):
        if name == "1 % differs":
            OutputFile.objects.filter(dataset=dataset, size_bytes__lte=number // DIFFERS_EVERY).update(adler32="ffffffff")
        comparisons_ask([dataset.pk])
        begun, calls = time.monotonic(), _calls()
        cost, turns = _compared(dataset)
        seconds, made = time.monotonic() - begun, _calls() - calls
        rows = Drift.objects.filter(dataset=dataset, ended_at=None).count()
        print(
            f"{name:>12} {seconds:6.1f} {sum(made.values()):6} {cost.statements:10} {cost.worker_seconds:9.1f}"
            f" {cost.backend_seconds:9.1f} {rows:6} {turns:6}", flush=True,
        )  # fmt: skip
    print("calls: " + ", ".join(f"{number} {name}" for name, number in sorted(made.items())))


def _compared(dataset: Any) -> tuple[Cost, int]:
    """Until it has ended; in how many turns."""
    from outputs_app.checks.reconciliation.run import comparisons_run
    from outputs_app.models import Comparison

    turns = 0
    with costs() as cost:
        while True:
            comparisons_run()
            turns += 1
            row = Comparison.objects.get(dataset=dataset)
            if row.last_error:
                raise SystemExit(row.last_error)
            if row.begun_at is None:
                return cost, turns


def _calls() -> Counter[str]:
    """By service and operation, as the metric counts them."""
    from wms2.metrics.series import EXTERNAL_CALL_SECONDS

    return Counter({
        f"{sample.labels['service']} {sample.labels['operation']}": int(sample.value)
        for family in EXTERNAL_CALL_SECONDS.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    })  # fmt: skip


def _registered(number: int) -> Any:
    """A dataset with so many files, told of everywhere, and nothing owed for it."""
    from django.utils import timezone

    from dags_app.models import DAGStatus
    from outputs_app.models import BlockStatus, Effect, EffectKind, EffectState, OutputFile, ProcessingBlock
    from requests_app.models import RequestStatus
    from tests.support.rows import dag_row, generation_spec, output_spec, request_row, unit_row, workflow_row
    from wms2.adapters import factory
    from wms2.adapters.rucio_types import RucioFile

    tag = uuid.uuid4().hex[:8]
    output = output_spec(tag)
    workflow = workflow_row(request_row(RequestStatus.ACTIVE, request_name=f"bench_{tag}"), generation_spec(outputs=(output,)))
    dataset, unit = workflow.output_datasets.get(), unit_row(dag_row(workflow, DAGStatus.READY))
    rucio, now = factory.rucio(), timezone.now()
    kinds = (
        EffectKind.RUCIO_BLOCK,
        EffectKind.RUCIO_FILES,
        EffectKind.RUCIO_PROTECT,
        EffectKind.DBS_BLOCK,
        EffectKind.RUCIO_TAPE,
    )
    for index in range(max(1, number // PER_BLOCK)):
        block = ProcessingBlock.objects.create(
            workflow=workflow, dataset=dataset, block_index=index, dataset_name=dataset.name, sealed_at=now, first_file_at=now,
            dbs_block_name=f"{dataset.name}#{uuid.uuid4()}", status=BlockStatus.COMPLETE, dbs_block_closed=True, origin_rse=DISK,
        )  # fmt: skip
        files = OutputFile.objects.bulk_create(
            OutputFile(
                lfn=f"{output.merged_lfn_base}/{index:05d}/{uuid.uuid4()}.root", dataset=dataset, block=block, unit=unit,
                rse=DISK, size_bytes=index * PER_BLOCK + n + 1, adler32=f"{n + 1:08x}", events=10, rule_id=uuid.uuid4().hex,
                lumis={"1": [[index * PER_BLOCK + n + 1, 10]]},
            )
            for n in range(PER_BLOCK)
        )  # fmt: skip
        Effect.objects.bulk_create(
            Effect(
                request=workflow.request, block=block, kind=kind, key=f"{kind}:{block.pk}", state=EffectState.DONE, done_at=now
            )
            for kind in kinds
        )
        rucio.ensure_block(dataset.name, block.dbs_block_name)
        rucio.register_files(DISK, block.dbs_block_name, [RucioFile(f.lfn, f.size_bytes, f.adler32) for f in files])
        rucio.close_block(block.dbs_block_name)
        _in_dbs(block)
    _answer_for_rules(dataset)
    return dataset


def _in_dbs(block: Any) -> None:
    """As the effect does it."""
    from outputs_app.effects import HANDLERS
    from outputs_app.models import Effect, EffectKind

    effect = Effect.objects.select_related("block__dataset", "request").get(block=block, kind=EffectKind.DBS_BLOCK)
    HANDLERS[EffectKind.DBS_BLOCK].call(effect)


def _answer_for_rules(dataset: Any) -> None:
    from django.utils import timezone

    from outputs_app.models import OutputFile
    from wms2.adapters.caller import observed
    from wms2.adapters.rucio_rules import RucioRules
    from wms2.adapters.rucio_types import RuleInfo
    from wms2.adapters.wire import adapter

    common = {
        "did_type": "FILE", "copies": 1, "rse_expression": DISK, "state": "OK", "locks_ok_cnt": 1, "locks_replicating_cnt": 0,
        "locks_stuck_cnt": 0, "locked": False, "expires_at": None, "activity": "Production Output", "comments": "wms2",
        "error": None, "created_at": timezone.now(), "account": "wms2", "grouping": "NONE", "scope": "cms", "bytes": 1,
    }  # fmt: skip
    rows = [
        common | {"id": pk, "name": lfn} for lfn, pk in OutputFile.objects.filter(dataset=dataset).values_list("lfn", "rule_id")
    ]

    def listed(self: RucioRules, comment: str) -> list[Any]:
        with observed("rucio", "rules_with_comment"):
            portions = (rows[start : start + 1000] for start in range(0, len(rows), 1000))
            return [rule for portion in portions for rule in adapter(list[RuleInfo]).validate_python(portion)]

    RucioRules.rules_with_comment = listed  # type: ignore[method-assign]
