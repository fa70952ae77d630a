"""Who may do what with rules, as in CMS; the rest by Rucio's generic permissions (root, or the account attribute ``admin``).

Approval: where one RSE that an expression gives has the attribute ``requires_approval``, a rule must ask for it, and only a rule
at one RSE may. Lifetime: accounts of type USER make no rule without one, and no rule on tape has one. Locks: an owner may make,
change and delete its rules, but only an administrator makes locked ones, unlocks, hands over or changes their priority.
"""

from __future__ import annotations

from rucio.core.account import get_account, has_account_attribute
from rucio.core.rse import list_rse_attributes
from rucio.core.rse_expression_parser import parse_expression
from rucio.core.rule import get_rule
from rucio.db.sqla.constants import AccountType

_FOR_ADMINISTRATORS = frozenset(
    {"account", "boost_rule", "cancel_requests", "child_rule_id", "locked", "meta", "priority", "state"}
)


def _is_administrator(issuer, session):
    return issuer.external == "root" or has_account_attribute(account=issuer, key="admin", session=session)


def _owns(issuer, rule_id, session):
    return get_rule(rule_id, session=session)["account"] == issuer


def _add_rule(issuer, kwargs, session):
    rses = parse_expression(kwargs["rse_expression"], filter_={"vo": issuer.vo}, session=session)
    attributes = [list_rse_attributes(rse_id=rse["id"], session=session) for rse in rses]
    lifetime = kwargs.get("lifetime")
    if lifetime is None and get_account(issuer, session=session)["account_type"] == AccountType.USER:
        return False
    if lifetime is not None and any(each.get("rse_type") == "TAPE" for each in attributes):
        return False
    if kwargs["ask_approval"]:
        if len(rses) > 1:
            return False
    elif any(each.get("requires_approval", False) for each in attributes):
        return False
    return (kwargs["account"] == issuer and not kwargs["locked"]) or _is_administrator(issuer, session)


def _update_rule(issuer, kwargs, session):
    if _is_administrator(issuer, session):
        return True
    return not _FOR_ADMINISTRATORS & kwargs["options"].keys() and _owns(issuer, kwargs["rule_id"], session)


def _del_rule(issuer, kwargs, session):
    return _is_administrator(issuer, session) or _owns(issuer, kwargs["rule_id"], session)


_OWN = {"add_rule": _add_rule, "update_rule": _update_rule, "del_rule": _del_rule}


def has_permission(issuer, action, kwargs, *, session):
    """The answer, or None: then Rucio asks its generic permissions."""
    rule = _OWN.get(action)
    return None if rule is None else rule(issuer, kwargs, session)
