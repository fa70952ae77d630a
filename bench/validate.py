"""Many registered files of one request validated in bulk: the catalogues, as ``bench.outputs`` answers for them.

In the same run as their registration, which it must not outlast. ``BENCH_FILES`` (100,000) and ``BENCH_CALL_MS`` (5) as there;
every call of the validation takes that long.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from bench.outputs import CALL_MS, FILES, FILES_OF_UNIT, RSE, Services, _account, _reported, _request, _run_effects


class Catalogues(Services):
    """What was registered is read back."""

    def __init__(self, call_seconds: float) -> None:
        super().__init__(call_seconds)
        self.registered: dict[str, Any] = {}
        self.outputs = Outputs(self)

    def register_block(self, block: Any) -> tuple[str, ...]:
        self.registered[block.block_name] = block
        return super().register_block(block)

    def rules_with_comment(self, comment: str) -> list[Any]:
        from wms2.adapters.rucio_types import RuleState

        self._one("rules_with_comment")
        ok = {"state": RuleState.OK, "expires_at": None, "error": ""}
        places = {rule: "T0_Tape" if "#" in name and rule not in self.at_source else RSE for rule, name in self.rules.items()}
        return [SimpleNamespace(rule_id=rule, rse_expression=rse, **ok) for rule, rse in places.items()]

    def blocks_held(self, blocks: Mapping[str, Collection[str]]) -> dict[str, Any]:
        from wms2.adapters.rucio_types import HeldBlock, HeldFile

        for _ in range(2 * len(blocks) + 1):
            self._one("blocks_held")
        copies = {RSE: "AVAILABLE"}
        return {
            name: HeldBlock(False, {f.lfn: HeldFile(f.size_bytes, f.adler32, copies) for f in self.registered[name].files})
            for name in blocks
        }


class Outputs:
    """DBS's writer, read."""

    def __init__(self, services: Catalogues) -> None:
        self._services = services

    def block(self, name: str) -> Any:
        self._services._one("block")
        return self._info(name)

    def _info(self, name: str) -> Any:
        block = self._services.registered[name]
        return SimpleNamespace(block_name=name, is_open=False, file_count=len(block.files), size_bytes=block.size_bytes)

    def blocks(self, dataset: str) -> list[Any]:
        self._services._one("blocks")
        return [self._info(name) for name in self._services.registered]

    def files(self, name: str, **_: Any) -> Iterator[Any]:
        self._services._one("files")
        for file in self._services.registered[name].files:
            yield SimpleNamespace(
                lfn=file.lfn, size_bytes=file.size_bytes, adler32=file.adler32, events=file.events, is_valid=True
            )

    def file_lumis(self, name: str) -> Iterator[Any]:
        self._services._one("file_lumis")
        for file in self._services.registered[name].files:
            for run, pairs in file.lumis.items():
                yield from (SimpleNamespace(lfn=file.lfn, run=run, lumi=lumi) for lumi, _ in pairs)


def main() -> None:
    """Print a table."""
    os.environ.setdefault("WMS2_SUBMIT_ROOT", "/nowhere")
    os.environ["WMS2_STORAGE_CHECKS_ENABLED"] = "0"
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from bench.accounting import _refuse_others
    from outputs_app.checks.reconciliation import rows
    from outputs_app.checks.validation import catalogues
    from outputs_app.effects import dbs, rucio, taking_back

    _refuse_others()
    services = Catalogues(float(os.environ.get("BENCH_CALL_MS", CALL_MS)) / 1000)
    for module in (dbs, rucio, taking_back, rows, catalogues):
        module.factory = SimpleNamespace(dbs=services, rucio=services)  # type: ignore[attr-defined]
    number = int(os.environ.get("BENCH_FILES", FILES))
    print(f"{'step':>12} {'files/s':>8} {'statements':>11} {'worker s':>9} {'backend s':>10} {'clock s':>8}  calls")
    request = _request(number // FILES_OF_UNIT)
    with _reported("account", number, services):
        _account(request)
    with _reported("registration", number, services):
        _run_effects(request)
    with _reported("validation", number, services):
        progress = _validate(request)
    if not progress.done:
        raise SystemExit(f"not validated: {progress}")


def _validate(request: Any) -> Any:
    """As evaluations do, which tend it each time that an effect wakes them."""
    from django.db import transaction

    from outputs_app.checks.validation import validation_process
    from outputs_app.effects import executor
    from outputs_app.models import Effect, EffectKind, EffectState

    owed = Effect.objects.filter(request=request, kind=EffectKind.BLOCK_VALIDATE).exclude(state=EffectState.DONE)
    of = {"workflow_id": request.workflow.pk, "request_id": request.pk, "request_epoch": request.epoch}
    while True:
        with transaction.atomic():
            progress = validation_process(**of)
        if not owed.exists():
            return progress
        executor.effects_run_due(owner="bench")
        if broken := owed.exclude(last_error="").values_list("last_error", flat=True).first():
            raise SystemExit(broken)
