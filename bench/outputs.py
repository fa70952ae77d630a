"""Many output files of one request: accounted, registered, and all of them taken back.

``BENCH_FILES`` files (100,000) of units with 100 files each, in blocks of 500. The handlers of effects are the real ones; DBS and
Rucio answer from memory, each call that takes one name after ``BENCH_CALL_MS`` (5), as a service does that is not the bottleneck.
CPU is that of this process and of its PostgreSQL backend; the clock says how much the connections side by side gain. At the end
what the page of the request costs, and what its progress does.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from bench.costs import Cost, costs
from wms2.adapters.rucio_types import RuleState

FILES, FILES_OF_UNIT, BATCH, CALL_MS, RSE = 100_000, 100, 50, "5", "T1_US_FNAL_Disk"


class Services:
    """DBS and Rucio: what was called how often, and no more memory than is needed to answer."""

    def __init__(self, call_seconds: float) -> None:
        self.calls, self.call_seconds = Counter[str](), call_seconds
        self.blocks: dict[str, list[str]] = {}
        self.invalid: set[str] = set()
        self.rules: dict[str, str] = {}
        self.files: dict[str, set[str]] = {}
        self.at_source: set[str] = set()

    def __call__(self) -> Services:
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.update([name])

    def _one(self, name: str) -> None:
        self.calls[name] += 1
        time.sleep(self.call_seconds)

    def register_files(self, rse: str, block: str, files: Sequence[Any]) -> None:
        self.calls["register_files"] += 1
        self.files.setdefault(block, set()).update(file.lfn for file in files)

    def protect_files(self, rse: str, lfns: Sequence[str], **_: str) -> dict[str, str]:
        self.calls["protect_files"] += 1
        made = {lfn: uuid.uuid4().hex for lfn in lfns}
        self.rules |= {rule: lfn for lfn, rule in made.items()}
        return made

    def choose_tape_rse(self, expression: str, key: str) -> str:
        return "T0_Tape"

    def tape_rules_over(self, *_: str) -> list[Any]:
        self.calls["tape_rules_over"] += 1
        return []

    def tape_rule(self, block: str, rse: str, **_: str) -> str:
        self.calls["tape_rule"] += 1
        rule = uuid.uuid4().hex
        self.rules[rule] = block
        return rule

    def block_locations(self, blocks: Sequence[str]) -> dict[str, dict[str, bool]]:
        self.calls["block_locations"] += 1
        return {block: {RSE: True} for block in blocks}

    def block_rule(self, block: str, *_: str) -> str:
        self.calls["block_rule"] += 1
        rule = uuid.uuid4().hex
        self.rules[rule] = block
        self.at_source.add(rule)
        return rule

    def rule(self, rule: str) -> Any:
        self.calls["rule"] += 1
        return SimpleNamespace(rule_id=rule, state=RuleState.OK, expires_at=None)

    def files_kept(self, block: str, rule: Any) -> set[str]:
        self.calls["files_kept"] += 1
        return self.files[block]

    def delete_rule(self, rule: str, purge: bool = False) -> bool:
        self._one("delete_rule")
        return True

    def rules_with_comment(self, comment: str) -> list[Any]:
        self.calls["rules_with_comment"] += 1
        return [SimpleNamespace(rule_id=rule, name=name, expires_at="soon") for rule, name in self.rules.items()]

    def register_block(self, block: Any) -> tuple[str, ...]:
        self.calls["register_block"] += 1
        self.blocks[block.block_name] = [file.lfn for file in block.files]
        return ()

    def block_files(self, name: str) -> list[Any]:
        self.calls["block_files"] += 1
        return [SimpleNamespace(lfn=lfn, is_valid=lfn not in self.invalid) for lfn in self.blocks.get(name, ())]

    def invalidate_files(self, lfns: Iterable[str]) -> int:
        names = list(lfns)
        for name in names:
            self._one("invalidate_files")
            self.invalid.add(name)
        return len(names)

    def valid_file(self, dataset: str) -> str:
        return ""


def main() -> None:
    """Print a table."""
    os.environ.setdefault("WMS2_SUBMIT_ROOT", "/nowhere")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from bench.accounting import _refuse_others
    from outputs_app.effects import dbs, rucio, taking_back

    _refuse_others()
    services = Services(float(os.environ.get("BENCH_CALL_MS", CALL_MS)) / 1000)
    for module in (dbs, rucio, taking_back):
        module.factory = SimpleNamespace(dbs=services, rucio=services)  # type: ignore[attr-defined]
    number = int(os.environ.get("BENCH_FILES", FILES))
    print(f"{'step':>12} {'files/s':>8} {'statements':>11} {'worker s':>9} {'backend s':>10} {'clock s':>8}  calls")
    request = _request(number // FILES_OF_UNIT)
    with _reported("account", number, services):
        _account(request)
    with _reported("registration", number, services):
        _run_effects(request)
    _fail(request)
    with _reported("invalidation", number, services):
        _invalidate(request)
    with _reported("page", 1, services):
        _page(request)
    with _reported("progress", 1, services):
        _progress(request)


@contextmanager
def _reported(step: str, number: int, services: Services) -> Iterator[None]:
    services.calls.clear()
    began = time.monotonic()
    with costs() as cost:
        yield
    _line(step, number, cost, time.monotonic() - began, services)


def _line(step: str, number: int, cost: Cost, clock: float, services: Services) -> None:
    rate = number / cost.seconds if cost.seconds else 0.0
    times = f"{cost.statements:11} {cost.worker_seconds:9.2f} {cost.backend_seconds:10.2f} {clock:8.1f}"
    print(f"{step:>12} {rate:8.0f} {times}  {dict(services.calls)}", flush=True)


def _request(units: int) -> Any:
    from requests_app.models import RequestStatus
    from tests.support.rows import dag_row, generation_spec, output_spec, request_row, unit_row, workflow_row

    tag = uuid.uuid4().hex[:8]
    request = request_row(RequestStatus.ACTIVE, request_name=f"bench_outputs_{tag}")
    workflow = workflow_row(request, generation_spec(request.request_name, outputs=(output_spec(tag),)))
    dag = dag_row(workflow, dagman_cluster_id=tag)
    for index in range(units):
        unit_row(dag, index)
    return request


def _account(request: Any) -> None:
    from django.db import transaction

    from dags_app.models import WorkUnit
    from outputs_app.services import units_register
    from outputs_app.values import MergedFile, UnitOutputs
    from tests.support.rows import LARGE

    dataset = request.workflow.output_datasets.get()
    rows = list(WorkUnit.objects.filter(workflow=request.workflow).order_by("index"))
    for first in range(0, len(rows), BATCH):
        outputs = []
        for row in rows[first : first + BATCH]:
            lumis = [row.index * FILES_OF_UNIT + index + 1 for index in range(FILES_OF_UNIT)]
            files = [
                MergedFile(dataset.name, f"/store/mc/{uuid.uuid4()}.root", RSE, 10**9, "0000000a", 100, {"1": ((lumi, 100),)})
                for lumi in lumis
            ]
            outputs.append(UnitOutputs(row.pk, row.name, tuple(files)))
        with transaction.atomic():
            units_register(request_id=request.pk, request_epoch=request.epoch, outputs=outputs, limits=LARGE)


def _run_effects(request: Any) -> None:
    from django.db.models import F
    from django.utils import timezone

    from outputs_app.blocks.filling import blocks_register_sealed, blocks_seal_all
    from outputs_app.effects import executor
    from outputs_app.models import Effect, EffectState

    blocks_seal_all(workflow_id=request.workflow.pk)
    blocks_register_sealed(workflow_id=request.workflow.pk, request_id=request.pk, request_epoch=request.epoch)
    owed = Effect.objects.filter(request=request, epoch=F("request__epoch")).exclude(state=EffectState.DONE)
    while owed.exists():
        owed.filter(state=EffectState.PENDING).update(next_attempt_at=timezone.now())
        executor.effects_run_due(owner="bench")
        if owed.filter(state__in=(EffectState.REFUSED, EffectState.DEAD)).exists() or owed.exclude(last_error="").exists():
            raise SystemExit(owed.exclude(last_error="").values_list("last_error", flat=True)[0])


def _fail(request: Any) -> None:
    from requests_app.models import Request, RequestStatus

    Request.objects.filter(pk=request.pk).update(status=RequestStatus.FAILED)
    request.refresh_from_db()


def _invalidate(request: Any) -> None:
    from requests_app.services import request_invalidate

    request_invalidate(request=request, actor="bench", reason="bench")
    request.refresh_from_db()
    _run_effects(request)


def _page(request: Any) -> None:
    from requests_app.pages.request import request_page

    request_page(request)


def _progress(request: Any) -> None:
    from outputs_app.effects.invalidation import invalidation_progress

    invalidation_progress(request.pk)
