"""What operators do to failure rules: add, change, enable, disable, take back; audited with what was and what is.

A change holds for DAGs that are planned from now on; each DAG keeps the rules that it was planned with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms.models import model_to_dict

from dags_app.failure_rules import failure_rules_load, pattern_refused, rule_of
from dags_app.models import FailureRule
from dags_app.payload.contract.rules import pattern_problem
from wms2.actions import must_apply
from wms2.audit import audit, audited
from wms2.errors import ConfigurationError, InvalidTransition, StaleState

#: What an operator may set.
FIELDS = (
    "name", "order", "first_code", "last_code", "message", "step", "site", "category", "action", "cooloff_seconds",
    "memory_factor", "note",
)  # fmt: skip


def failure_rule_problem(row: FailureRule) -> str:
    """What is wrong with a rule; empty when it can be used."""
    try:
        row.full_clean(validate_constraints=True)
    except ValidationError as error:
        return "; ".join(f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
    for field in ("message", "step", "site"):
        text = getattr(row, field)
        if problem := pattern_problem(text) or (text and row.enabled and pattern_refused(text)):
            return f"{field}: {problem}"
    return rule_of(row).problem()


def failure_rule_add(*, actor: str, reason: str, **values: Any) -> FailureRule:
    """A rule of the operators' own.

    Raises:
        ConfigurationError: it cannot be used as it is.
    """
    row = FailureRule(source=FailureRule.Source.OPERATOR, **{name: values[name] for name in FIELDS})
    _save(row, old=None, action="failure_rule_add", actor=actor, reason=reason)
    return row


def failure_rule_change(*, row: FailureRule, actor: str, reason: str, **values: Any) -> None:
    """Change a rule. A shipped one becomes the operators': later releases leave it alone.

    Raises:
        ConfigurationError: it could not be used like that.
    """
    old = _reported(row)
    for name in FIELDS:
        if name != "name":
            setattr(row, name, values[name])
    row.source = FailureRule.Source.OPERATOR
    _save(row, old=old, action="failure_rule_change", actor=actor, reason=reason)


def failure_rule_enable(*, row: FailureRule, enabled: bool, actor: str, reason: str) -> None:
    """Switch a rule on or off.

    Raises:
        InvalidTransition: it is so already.
    """
    action = "failure_rule_enable" if enabled else "failure_rule_disable"
    if why := switch_refused(row, enabled=enabled):
        audit(actor=actor, action=action, target=row.name, target_type="failure_rule", reason=reason, refused=True, why=why)
        raise InvalidTransition(f"the rule {row.name}: {why}")
    old = _reported(row)
    row.enabled, row.source = enabled, FailureRule.Source.OPERATOR
    _save(row, old=old, action=action, actor=actor, reason=reason)


def failure_rule_take_back(*, row: FailureRule, actor: str, reason: str) -> None:
    """Remove an operator's rule; a shipped one that was changed comes back as shipped.

    Raises:
        InvalidTransition: it is as shipped.
    """
    action, old = "failure_rule_take_back", _reported(row)
    with audited(actor=actor, action=action, target=row.name, target_type="failure_rule", reason=reason, old=old):
        must_apply(f"the rule {row.name}", take_back_refused(row))
        FailureRule.objects.filter(pk=row.pk).delete()
        failure_rules_load()


def switch_refused(row: FailureRule, *, enabled: bool) -> str:
    """Why it cannot be switched on or off; empty if it can."""
    return f"It is {'on' if enabled else 'off'} already." if row.enabled == enabled else ""


def take_back_refused(row: FailureRule) -> str:
    """Why there is nothing to take back; empty if there is."""
    return "" if row.source == FailureRule.Source.OPERATOR else "It is as shipped; switch it off instead."


def _save(row: FailureRule, *, old: Mapping[str, Any] | None, action: str, actor: str, reason: str) -> None:
    problem = failure_rule_problem(row)
    if problem:
        audit(actor=actor, action=action, target=row.name, target_type="failure_rule", reason=reason, refused=True, why=problem)
        raise ConfigurationError(problem)
    read = FailureRule.objects.select_for_update().filter(pk=row.pk, updated_at=row.updated_at)
    with transaction.atomic():
        if old is not None and read.first() is None:
            raise StaleState(f"the rule {row.name} was changed meanwhile")
        row.save()
        audit(actor=actor, action=action, target=row.name, target_type="failure_rule", reason=reason, old=old, new=_reported(row))


def _reported(row: FailureRule) -> dict[str, Any]:
    return model_to_dict(row, fields=(*FIELDS, "enabled")) | {"source": str(row.source)}
