"""Comparisons: one dataset after the other, in portions of a few blocks, each recorded before the next is begun.

A worker claims a comparison with a lease and a rising epoch, asks with no transaction open, and records only while the claim is
its own and only for blocks that no effect has changed meanwhile. A service that does not answer leaves everything as it was, and
the comparison goes on later where it stopped.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property

import structlog
from django.db import transaction
from django.db.models import F, Q, QuerySet

from outputs_app.checks.reconciliation.compare import ExpectedBlock, Finding, in_dbs, in_rucio, valid_still
from outputs_app.checks.reconciliation.rows import AtRest, blocks_at_rest, blocks_expected, drift_record, rules_by_id
from outputs_app.checks.reconciliation.rule_check import ITS_OWN, check_rules
from outputs_app.effects.handler import comment_of
from outputs_app.effects.requests import EffectRequest
from outputs_app.effects.time_slices import TIME_SLICE_SECONDS, lease_end
from outputs_app.models import (
    Comparison,
    DatasetState,
    Drift,
    DriftKind,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    ProcessingBlock,
)
from wms2.adapters import factory
from wms2.adapters.rucio_types import RuleInfo
from wms2.adapters.types import BlockInfo
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.runtime import clock
from wms2.runtime.heartbeat import lease_kept_alive
from wms2.runtime.passes import row_by_itself

#: A dataset whose blocks have not changed for so long is compared only when an operator asks.
_UNCHANGED_DAYS = 30.0

log = structlog.get_logger(__name__)
#: Blocks of one portion; a block has some hundred files.
PORTION = 4
#: From an answer that did not come to the next try.
PAUSE = timedelta(minutes=10)
_NEW_AT_ONCE = 500


def comparisons_run() -> None:
    """Carry on what is due until a turn is over: other tasks of this worker wait."""
    comparisons_begin()
    ends_at = time.monotonic() + TIME_SLICE_SECONDS
    while time.monotonic() < ends_at and (comparison := _claim()) is not None:
        run = Run(comparison)
        try:
            alive = lease_kept_alive(run.renew, life_seconds=conf().effect_lease_seconds, comparison=str(comparison))
            with row_by_itself("comparisons", comparison, run.put_off), alive:
                run.go(lambda: time.monotonic() >= ends_at)
        except LeaseLost as error:
            log.warning("comparison gave way", comparison=str(comparison), why=str(error))


def comparisons_begin() -> None:
    """Every dataset with files is compared by and by, and the census is taken; without an interval only when an operator asks."""
    hours = conf().reconcile_hours
    due_at = clock.now() + timedelta(hours=hours) if hours else None
    unwatched = OutputDataset.objects.filter(comparison=None, blocks__first_file_at__isnull=False).distinct()
    new = [Comparison(dataset_id=pk, due_at=due_at) for pk in unwatched.values_list("pk", flat=True)[:_NEW_AT_ONCE]]
    if not Comparison.objects.filter(dataset=None).exists():
        new.append(Comparison(due_at=due_at))
    Comparison.objects.bulk_create(new, ignore_conflicts=True)


def _claim() -> Comparison | None:
    """The one that is due longest, and that no other worker has claimed."""
    now = clock.now()
    free = Q(claim_expires_at=None) | Q(claim_expires_at__lt=now)
    with transaction.atomic():
        rows = Comparison.objects.select_for_update(skip_locked=True, of=("self",)).select_related("dataset__workflow__request")
        comparison = rows.filter(free, due_at__lte=now).order_by("due_at", "id").first()
        if comparison is not None:
            comparison.claim_epoch += 1
            comparison.claim_expires_at = lease_end()
            comparison.save(update_fields=["claim_epoch", "claim_expires_at"])
        return comparison


class Run:
    """One worker's turn with a comparison that it has claimed. What is listed for all portions is asked once."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison, self._result = comparison, dict(comparison.result)

    def go(self, is_over: Callable[[], bool]) -> None:
        """Portion after portion, until all is compared or the turn is over.

        Raises:
            ServiceError: DBS or Rucio do not answer, or refuse; what was recorded before stays.
            LeaseLost: another worker has claimed the comparison.
        """
        comparison = self._comparison
        if comparison.begun_at is None:
            comparison.begun_at, comparison.up_to_block = clock.now(), None
            self._result = {"blocks": 0, "files": 0, "in_flight": 0, "begun": 0, "ended": 0}
            with self._recording(begun_at=comparison.begun_at, up_to_block=None):
                pass
        problem = ""
        if comparison.dataset is None:
            found = check_rules(comparison.result.get("since"))
            with self._recording():
                self._record(Drift.objects.filter(found.seen), found.findings)
                # what could not be read is listed again by the next census
                since = comparison.result.get("since") if found.problem else comparison.begun_at.isoformat()
                self._result |= {"rules": found.rules, "since": since}
            problem = found.problem
        elif not self._compare(comparison.dataset, is_over):
            self._mine().update(claim_expires_at=None)
            return
        self._end(problem)

    def renew(self) -> bool:
        """Whether it is this worker's still: an answer may take longer than a claim lasts."""
        return self._mine().filter(claim_expires_at__isnull=False).update(claim_expires_at=lease_end()) == 1

    def put_off(self, error: str) -> None:
        """Go on later after the last portion that was recorded."""
        self._mine().update(last_error=error, claim_expires_at=None, due_at=clock.now() + PAUSE)

    def _compare(self, dataset: OutputDataset, is_over: Callable[[], bool]) -> bool:
        """Whether all is compared. Of what was taken back nothing may be valid: a worker that was paused comes late."""
        last = self._comparison.up_to_block
        if last is None:
            if dataset.state == DatasetState.INVALIDATED:
                with self._recording(up_to_block=-1):
                    self._record(_compared().filter(dataset=dataset, block=None), ())
            else:
                self._compare_dataset(dataset)
            last = -1
        rows = ProcessingBlock.objects.filter(dataset=dataset).select_related("dataset", "workflow__request")
        while some := list(rows.order_by("block_index").filter(block_index__gt=last)[:PORTION]):
            if is_over():
                return False
            last = some[-1].block_index
            self._compare_blocks(some, last)
        return True

    def _compare_dataset(self, dataset: OutputDataset) -> None:
        """Its access type, and blocks in it that no row knows."""
        findings: list[Finding] = []
        place = ("", dataset.workflow.request.pk, dataset.pk)
        if ProcessingBlock.objects.filter(dataset=dataset, dbs_block_closed=True).exists():
            known, listed = factory.dbs().outputs.dataset(dataset.name), self._listed
            if known is not None and known.access_type != (wanted := _access_type(dataset) or known.access_type):
                findings.append(Finding(DriftKind.DATASET_TYPE, dataset.name, wanted, known.access_type, *place))
            mine = ProcessingBlock.objects.filter(dataset__name=dataset.name).values_list("dbs_block_name", flat=True)
            for name in listed.keys() - set(mine):
                has = f"{listed[name].file_count} files"
                findings.append(Finding(DriftKind.DBS_BLOCK_EXTRA, name, "no such block", has, *place))
        with self._recording(up_to_block=-1):
            self._record(_compared().filter(dataset=dataset, block=None).exclude(kind=DriftKind.RULE_GONE), findings)

    def _compare_blocks(self, blocks: Sequence[ProcessingBlock], last: int) -> None:
        """One portion; blocks for which something is under way are left to the next run."""
        before = blocks_at_rest([block.pk for block in blocks])
        expected_blocks = blocks_expected([block for block in blocks if block.pk in before], "lumis", "parents")
        wanted = [block for block in expected_blocks if not before[block.row.pk].taken_back]
        findings = [*self._in_dbs(expected_blocks, before), *self._in_rucio(wanted)]
        with self._recording(up_to_block=last):
            after = blocks_at_rest(before)
            same = {pk for pk, stamp in before.items() if after.get(pk) == stamp}
            self._record(_compared().filter(block__in=same), [one for one in findings if one.block_id in same])
            self._result["blocks"] += len(same)
            self._result["files"] += sum(len(block.files) for block in expected_blocks if block.row.pk in same)
            self._result["in_flight"] += len(blocks) - len(same)

    def _in_dbs(self, blocks: Sequence[ExpectedBlock], at_rest: Mapping[uuid.UUID, AtRest]) -> Iterator[Finding]:
        outputs = factory.dbs().outputs
        for block in blocks:
            name, taken_back = block.row.dbs_block_name, at_rest[block.row.pk].taken_back
            if block.row.dbs_block_closed or taken_back:
                # listed at the beginning of the turn: what was registered since is asked for by its name
                known = self._listed.get(name) or outputs.block(name)
                # of an INVALID dataset DBS lists no valid ones; they show again as soon as another request writes into it
                files = outputs.files(name, valid_only=False, operation="compare") if known is not None else ()
                yield from valid_still(block, files) if taken_back else in_dbs(block, known, files)

    def _in_rucio(self, blocks: Sequence[ExpectedBlock]) -> Iterator[Finding]:
        places = {block.row.dbs_block_name: {block.place_of(file) for file in block.files.values()} - {""} for block in blocks}
        held = factory.rucio().blocks_held(places) if places else {}
        for block in blocks:
            yield from in_rucio(block, held.get(block.row.dbs_block_name), self._rule)

    @cached_property
    def _listed(self) -> dict[str, BlockInfo]:
        """The dataset's blocks in DBS."""
        return {block.block_name: block for block in factory.dbs().outputs.blocks(self._dataset.name)}

    @cached_property
    def _rule(self) -> Callable[[str], RuleInfo | None]:
        """Rules of the request, by their ids."""
        return rules_by_id(comment_of(self._dataset.workflow.request.request_name))

    @property
    def _dataset(self) -> OutputDataset:
        dataset: OutputDataset = self._comparison.dataset  # type: ignore[assignment]  # the census asks for nothing of it
        return dataset

    def _record(self, seen: QuerySet[Drift], findings: Sequence[Finding]) -> None:
        begun, ended = drift_record(seen, findings)
        self._result["begun"] += begun
        self._result["ended"] += ended

    @contextmanager
    def _recording(self, **changes: object) -> Iterator[None]:
        """What a portion brought, in one transaction with how far the comparison is.

        Raises:
            LeaseLost: another worker has claimed it; nothing is recorded.
        """
        with transaction.atomic():
            if not self._mine().select_for_update().exists():
                raise LeaseLost(f"{self._comparison} is claimed by another process")
            yield
            self._mine().update(**changes, result=self._result, last_error="", claim_expires_at=lease_end())

    def _end(self, problem: str) -> None:
        """Once more after the interval, as long as blocks of the dataset change; at once if it was asked for meanwhile."""
        comparison, now, settings = self._comparison, clock.now(), conf()
        changed = ProcessingBlock.objects.filter(updated_at__gt=now - timedelta(days=_UNCHANGED_DAYS))
        goes_on = comparison.dataset is None or changed.filter(dataset=comparison.dataset).exists()
        due_at = now + timedelta(hours=settings.reconcile_hours) if settings.reconcile_hours and goes_on else None
        ended = {"begun_at": None, "ended_at": now, "claim_expires_at": None, "last_error": problem}
        if not self._mine().filter(asked_at__gt=comparison.begun_at).update(**ended, due_at=now):
            self._mine().update(**ended, due_at=due_at)
        log.info("comparison ended", comparison=str(comparison), **self._result)

    def _mine(self) -> QuerySet[Comparison]:
        return Comparison.objects.filter(pk=self._comparison.pk, claim_epoch=self._comparison.claim_epoch)


def _compared() -> QuerySet[Drift]:
    """What comparisons find, and see end."""
    return Drift.objects.exclude(kind__in=ITS_OWN)


def _access_type(dataset: OutputDataset) -> str:
    """As published to DBS; empty while that is under way, and where another user had decided by then."""
    published = Effect.objects.filter(key=EffectRequest(EffectKind.DBS_VALID, dataset.pk).key, epoch=F("request__epoch")).first()
    if published is None:
        return "PRODUCTION" if conf().datasets_valid_at == "completion" else ""
    return str(published.result.get("access_type", "")) if published.state == EffectState.DONE else ""
