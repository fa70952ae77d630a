"""Trying failure rules on recorded failures: which rule would decide each, and what would change. Reads rows, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dags_app.failure_rules import rule_of, rules_in_force
from dags_app.models import FailureRule, FailureSample
from dags_app.payload.contract.rules import Evidence, RuleBook
from dags_app.payload.post.classify import Classification, policy
from wms2.conf import Conf

#: Recorded failures that one trial looks at: the newest.
MOST_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class Trial:
    """One recorded failure: how it was classified then, and how it would be now."""

    sample: FailureSample
    verdict: Classification

    @property
    def changed(self) -> bool:
        """Whether another rule or another class would come out."""
        group = self.sample.group
        return (group.rule, group.category) != (self.verdict.rule or "", self.verdict.category)


def rules_try(settings: Conf, *, tried: FailureRule | None = None) -> tuple[Trial, ...]:
    """The newest recorded failures under the rules in force, with ``tried`` among them as if it were enabled.

    With ``tried`` only failures that it would decide, or that it decided then, are told.
    """
    book = rules_in_force(settings)
    if tried is not None:
        book = _with(book, tried)
    samples = FailureSample.objects.select_related("group", "group__workflow__request", "dag").order_by("-id")
    lean = samples.defer("group__workflow__spec", "group__workflow__psets", "group__workflow__request__request_data")
    trials = tuple(Trial(sample, policy(evidence_of_sample(sample), book)) for sample in lean[:MOST_SAMPLES])
    if tried is None:
        return trials
    return tuple(trial for trial in trials if tried.name in (trial.verdict.rule, trial.sample.group.rule))


def evidence_of_sample(sample: FailureSample) -> Evidence:
    """What the POST script knew, from what was kept of it."""
    group = sample.group
    return Evidence(group.code, sample.message, group.step, group.site, tuple(sample.bad_files))


def _with(book: RuleBook, tried: FailureRule) -> RuleBook:
    rows = FailureRule.objects.filter(enabled=True).exclude(pk=tried.pk)
    ordered = sorted([*rows, tried], key=lambda row: (row.order, row.pk or 0))
    return replace(book, rules=tuple(rule_of(row) for row in ordered))
