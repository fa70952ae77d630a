"""``docs/operations.md`` is what the declarations say."""

from __future__ import annotations

from deploy.docs import actions
from wms2.actions import Role, resource_types


def test_the_page_is_what_the_program_writes() -> None:
    assert actions.TARGET.read_text() == actions.page(), "run python -m deploy.docs.actions"


def test_every_verb_says_what_it_does_and_what_its_fields_mean() -> None:
    for resource_type in resource_types():
        for action in resource_type.actions:
            assert action.does.endswith("."), (resource_type.name, action.name)
            assert all(field.help or field.choices for field in action.fields), (resource_type.name, action.name)


def test_an_inverse_is_a_verb_of_the_same_row_and_what_cannot_be_undone_has_none() -> None:
    wrong = [
        f"{resource_type.name} {action.name}: {action.inverse}"
        for resource_type in resource_types()
        for action in resource_type.actions
        if action.inverse is not None
        and (action.dangerous or action.inverse not in {each.name for each in resource_type.actions})
    ]
    assert wrong == []


def test_operators_may_do_every_verb_and_others_only_what_concerns_rows_of_their_own() -> None:
    shared = {
        f"{resource_type.name} {action.name}": action.roles
        for resource_type in resource_types()
        for action in resource_type.actions
        if action.roles != (Role.OPERATOR,)
    }
    of_requests = dict.fromkeys(
        ("request abort", "request hold", "request release", "request note"), (Role.REQUESTER, Role.OPERATOR)
    )
    on_sites = ("site drain", "site maintenance", "site ban", "site unban", "site note", "ban lift")
    of_sites = dict.fromkeys(on_sites, (Role.SITE_ADMIN, Role.OPERATOR))
    of_both = {"bulk-run cancel": (Role.REQUESTER, Role.SITE_ADMIN, Role.OPERATOR)}
    on_alerts = ("alert acknowledge", "alert give-back", "alert silence", "alert end-silence")
    of_sites |= dict.fromkeys(on_alerts, (Role.SITE_ADMIN, Role.OPERATOR))
    of_all = dict.fromkeys(("request watch", "request unwatch"), (Role.VIEWER,))
    assert shared == of_requests | of_sites | of_both | of_all
