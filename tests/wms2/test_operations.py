"""Every operation at every door, made from the declarations: what a row's status refuses is refused everywhere in the same words,
audited, and changes nothing; what is done is audited and may be asked for again; who has no role for it is sent away; a locked
row is said to be so.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from io import StringIO
from typing import Any, NamedTuple

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, transaction
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app.models import Request
from sites_app.models import Site, SiteBan
from tests.support import every_row
from wms2.actions import (
    Action,
    AlreadyDone,
    Field,
    Kind,
    ResourceType,
    Role,
    arguments,
    decision_basis,
    resource_type_of,
    resource_types,
)
from wms2.identities.grants import LIMITED, OPERATORS
from wms2.identities.people import role_give
from wms2.management.commands.operate import Command
from wms2.models import AuditEntry
from wms2.runtime.locks import BEING_CHANGED

pytestmark = pytest.mark.django_db
#: They ask a schedd, a collector or ReqMgr2, or read a DAG's directory, which the rows here do not have; the last need input
#: that no declaration has, or a document (``tests/requests_app/api/test_admission.py``, ``services/test_invalidating_files.py``,
#: ``notifying``).
LEFT_OUT = {
    "dag hold", "dag release", "dag leave-sites", "pool ask", "request restart", "schedd check", "schedd remove-strays",
    "worker shutdown", "admission-limit add", "request invalidate-files", "request sites",
    "alert-channel change-channel", "service add-alert-channel",
}  # fmt: skip
#: No button is offered where there is nothing to lift or to let in; who asks all the same is answered as if it were done.
NOT_REFUSED = {"unban", "restore"}
DONE, REFUSED = "done", "refused"


class Answer(NamedTuple):
    """How a door answered: done, refused, or its own word for something else; and all that it said."""

    outcome: str
    said: str


Door = Callable[[ResourceType, Action, Any], Answer]


@pytest.fixture(scope="module")
def rows(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A row of each resource; of requests one with a workflow and a DAG."""
    built = every_row.build(tmp_path_factory.mktemp("scene"))
    found = {resource_type.name: resource_type.model._default_manager.first() for resource_type in resource_types()}
    assert [name for name, row in found.items() if row is None and name != "dead-letter"] == []
    return {name: row for name, row in found.items() if row is not None} | {"request": built.active}


@pytest.fixture
def olga(db: Any) -> User:
    """An operator, who may open the admin."""
    user = User.objects.create_user("olga", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    return user


def given(action: Action, row: Any) -> dict[str, Any]:
    """A reason and the least input that fits: what the row has, and whatever is required."""
    values = {name: value for name, value in action.initial(row).items() if value not in (None, "", [])}
    asked = [one for one in action.fields if one.required or one.default is not None]
    values |= {one.name: _sample(one, row) for one in asked if one.name not in values}
    return {"reason": "because", **values}


def _sample(one: Field, row: Any) -> Any:
    if one.name == "confirm":
        return row.request_name
    samples: dict[Kind, Any] = {
        Kind.WHOLE: int(one.least or 1),
        Kind.NUMBER: one.least or 1,
        Kind.TEXTS: ["x"],
        Kind.NOTES: {},
        Kind.SITES: ["T1_US_FNAL"],
        Kind.LFNS: ["/store/x"],
        Kind.MOMENT: f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
    }
    return samples.get(one.kind, one.choices[0][0] if one.choices else "x")


def address(resource_type: ResourceType, action: Action, row: Any) -> str:
    """Of the operation on a row, over REST."""
    last = f"/{action.path}" if action.path else ""
    return "/api/v1/" + re.sub(r"<\w+:(\w+)>", lambda found: str(getattr(row, found[1])), resource_type.address) + last


def over_rest(user: User) -> Door:
    client = APIClient()
    client.force_authenticate(user)

    def door(resource_type: ResourceType, action: Action, row: Any) -> Answer:
        answer = getattr(client, action.method)(address(resource_type, action, row), given(action, row), format="json")
        return Answer({202: DONE, 409: REFUSED}.get(answer.status_code, str(answer.status_code)), answer.content.decode())

    return door


def by_the_admin(user: User) -> Door:
    client = Client()
    client.force_login(user)

    def door(resource_type: ResourceType, action: Action, row: Any) -> Answer:
        data = {name: " ".join(value) if isinstance(value, list) else value for name, value in given(action, row).items()}
        data = {name: value for name, value in data.items() if value is not False}
        options = row._meta
        path = f"/admin/{options.app_label}/{options.model_name}/verb/{action.name}/"
        answer = client.post(path, {**data, "id": row.pk, "seen": decision_basis(action, row)[0]})
        return Answer(
            {302: DONE, 409: REFUSED}.get(answer.status_code, str(answer.status_code)), html.unescape(answer.content.decode())
        )

    return door


def from_the_command_line(resource_type: ResourceType, action: Action, row: Any) -> Answer:
    options = []
    for name, value in given(action, row).items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            options += [option]
        elif isinstance(value, list):
            options += [word for each in value for word in (option, each)]
        elif value is not False:
            options += [option, "{}" if isinstance(value, dict) else str(value)]
    out = StringIO()
    try:
        call_command(
            operate(), resource_type.name, named(resource_type, row), action.name, "--actor", "olga", *options, stdout=out
        )
    except CommandError as error:
        return Answer(REFUSED, str(error))
    return Answer(DONE, out.getvalue())


@cache
def operate() -> Command:
    """The command, whose parser, which knows all operations, is made once."""
    command = Command()
    parser = command.create_parser("", "operate")
    command.create_parser = lambda *_, **__: parser  # type: ignore[method-assign]
    return command


def named(resource_type: ResourceType, row: Any) -> str:
    """What the command line calls a row."""
    names = [str(getattr(row, field)) for field in ("request_name", "dbs_block_name", "name", "pk") if hasattr(row, field)]
    return next(name for name in names if _found(resource_type, name, row))


def _found(resource_type: ResourceType, name: str, row: Any) -> bool:
    try:
        return [each.pk for each in resource_type.find(name)] == [row.pk]
    except (ValueError, TypeError):
        return False


def status_details(resource_type: ResourceType, row: Any) -> Iterator[Any]:
    """The row in each of its statuses that the database lets it have, each in a transaction that is taken back."""
    column = next((name for name in ("status", "state") if getattr(row, f"get_{name}_display", None)), "")
    words = [word for word, _ in row._meta.get_field(column).flatchoices] if column else [""]
    for word in words:
        with transaction.atomic():
            try:
                with transaction.atomic():
                    if column:
                        resource_type.model._default_manager.filter(pk=row.pk).update(**{column: word})
            except IntegrityError:
                pass
            else:
                yield fresh(resource_type, row)
            transaction.set_rollback(True)


def fresh(resource_type: ResourceType, row: Any) -> Any:
    return resource_type.model._default_manager.get(pk=row.pk)


def stored(resource_type: ResourceType, row: Any) -> Any:
    return resource_type.model._default_manager.filter(pk=row.pk).values().first()


def wrong_at(door: Door, resource_type: ResourceType, action: Action, row: Any, why: str, *, twice: bool) -> Iterator[str]:
    """Ask once or twice; what is not as it should be."""
    before, last = stored(resource_type, row), AuditEntry.objects.count()
    answer = door(resource_type, action, row)
    entries = list(AuditEntry.objects.order_by("pk")[last:].values_list("actor", "outcome", "reason"))
    expected = answer.outcome == REFUSED and why in answer.said
    if why and not expected and not (answer.outcome == DONE and asked_for_what_is_so(action, row, why)):
        yield f"refused because {why!r}, answered {answer.outcome} {answer.said[:200]!r}"
    if answer.outcome == REFUSED and stored(resource_type, row) != before:
        yield "refused, and the row has changed"
    stale = "try again" in answer.said  # the row's status and its rounds do not agree, as if it had changed meanwhile
    if answer.outcome == REFUSED and not stale and not any(outcome == "refused" for _, outcome, _ in entries):
        yield f"refused, and not audited: {answer.said[:200]!r}"
    if answer.outcome not in (DONE, REFUSED):
        yield f"answered {answer.outcome} {answer.said[:200]!r}"
    if answer.outcome == DONE and entries and not any(one[:2] == ("olga", "done") for one in entries):
        yield f"done, and audited as {entries}"
    if twice and answer.outcome == DONE and (left := resource_type.model._default_manager.filter(pk=row.pk).first()) is not None:
        again = door(resource_type, action, left)
        if again.outcome not in (DONE, REFUSED):
            yield f"asked again: {again.outcome} {again.said[:200]!r}"


def asked_for_what_is_so(action: Action, row: Any, why: str) -> bool:
    """Whether a client that asks again is answered as if it had just been done."""
    return (
        isinstance(why, AlreadyDone)
        or action.name in NOT_REFUSED
        or action.repeated(row, "olga", arguments(action, given(action, row)))
    )


def every(rows: dict[str, Any], reach: Callable[[Action], bool]) -> Iterator[tuple[ResourceType, Action, Any]]:
    """Each operation on its row in each status."""
    for name, row in rows.items():
        resource_type = resource_type_of(type(row))
        reached = [action for action in resource_type.actions if reach(action) and f"{name} {action.name}" not in LEFT_OUT]
        for each in status_details(resource_type, row) if reached else ():
            yield from ((resource_type, action, each) for action in reached)


@pytest.mark.dear("every operation in every status")
@pytest.mark.parametrize("name", ["REST", "admin", "command line"])
def test_a_door_refuses_what_the_status_refuses_audits_and_may_be_asked_again(
    rows: dict[str, Any], olga: User, name: str
) -> None:
    door, reach = {
        "REST": (over_rest(olga), lambda action: action.path is not None),
        "admin": (by_the_admin(olga), lambda action: action.admin),
        "command line": (from_the_command_line, lambda action: True),
    }[name]
    asked: set[tuple[str, str, bool]] = set()
    wrong = []
    for resource_type, action, row in every(rows, reach):
        why = action.refused(row)
        key = resource_type.name, action.name, bool(why)
        first = key not in asked
        if not first and name != "REST":  # the services are the same: one refusal and one act show that a door passes them on
            continue
        asked.add(key)
        with transaction.atomic():  # the next operation finds the status again
            wrong += [
                f"{resource_type.name} {action.name}, {decision_basis(action, row)[1]}: {each}"
                for each in wrong_at(door, resource_type, action, row, why, twice=first)
            ]
            transaction.set_rollback(True)
    assert not wrong, "\n".join(wrong)
    assert len({key[:2] for key in asked}) > 60


def only_for_roles(resource_type: ResourceType) -> list[Action]:
    """Without those that whoever is signed in may do."""
    return [action for action in resource_type.actions if Role.VIEWER not in action.roles]


def test_who_has_no_role_for_an_operation_is_sent_away_and_nothing_is_done(rows: dict[str, Any]) -> None:
    reader, staff = over_rest(User.objects.create_user("rita")), by_the_admin(User.objects.create_user("stan", is_staff=True))
    wrong = []
    for row in rows.values():
        resource_type = resource_type_of(type(row))
        before = stored(resource_type, row)
        for action in only_for_roles(resource_type):
            doors = ([reader] if action.path is not None else []) + ([staff] if action.admin else [])
            wrong += [
                f"{resource_type.name} {action.name}" for door in doors if door(resource_type, action, row).outcome != "403"
            ]
        wrong += [f"{resource_type.name} has changed"] if stored(resource_type, row) != before else []
    assert wrong == []
    entries = AuditEntry.objects.filter(actor__in=("rita", "stan")).values_list("action", "outcome")
    assert set(entries) == {("denied", "refused")}


def test_who_has_the_role_for_other_rows_than_this_one_is_sent_away_too(rows: dict[str, Any]) -> None:
    limited = {role: User.objects.create_user(f"own {role}") for role in LIMITED}
    role_give(role=Role.REQUESTER, holder=limited[Role.REQUESTER], cms_groups=["OTHERS"], actor="test", reason="")
    role_give(role=Role.SITE_ADMIN, holder=limited[Role.SITE_ADMIN], sites=["T1_US_FNAL"], actor="test", reason="")
    rows = {**rows, "site": Site.objects.get(name="T2_DE_DESY"), "ban": SiteBan.objects.get(site="T2_DE_DESY")}
    wrong, asked = [], 0
    for role, user in limited.items():
        rest, admin = over_rest(user), by_the_admin(user)
        for row in rows.values():
            resource_type = resource_type_of(type(row))
            before = stored(resource_type, row)
            for action in only_for_roles(resource_type):
                doors = ([rest] if action.path is not None else []) + ([admin] if action.admin else [])
                answers = [door(resource_type, action, row) for door in doors]
                asked += len(answers) if role in action.roles else 0
                wrong += [f"{role}: {resource_type.name} {action.name}" for each in answers if each.outcome != "403"]
            wrong += [f"{resource_type.name} has changed"] if stored(resource_type, row) != before else []
    assert wrong == []
    assert asked > 15, "operations that they may do to rows of their own"


def test_a_row_that_another_has_locked_is_said_to_be_so_at_every_door(
    rows: dict[str, Any], olga: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any, **__: Any) -> None:
        raise OperationalError("canceling statement due to lock timeout") from psycopg.errors.LockNotAvailable()

    for module in ("wms2.api.actions", "wms2.admin.actions", "wms2.management.commands.operate"):
        monkeypatch.setattr(f"{module}.perform", locked)
    row = rows["request"]
    resource_type = resource_type_of(Request)
    action = next(action for action in resource_type.actions if action.name == "hold")
    for door, outcome in ((over_rest(olga), "503"), (by_the_admin(olga), REFUSED), (from_the_command_line, REFUSED)):
        answer = door(resource_type, action, fresh(resource_type, row))
        assert answer.outcome == outcome
        assert BEING_CHANGED in answer.said
