"""``manage.py operate TYPE NAME ACTION --reason ...``: every declared operation, as the REST interface and the admin have it."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError
from rest_framework.exceptions import ParseError

from wms2.actions import (
    OMIT,
    REFUSALS,
    Action,
    Field,
    Kind,
    ResourceType,
    arguments,
    decision_basis,
    perform,
    resource_types,
    undone,
    will_happen,
)
from wms2.api.actions import input_serializer
from wms2.api.parsers import strict_json
from wms2.api.problems import flattened, several
from wms2.management.arguments import actor_named
from wms2.runtime.locks import BEING_CHANGED, lock_refused

#: Before a field's name among the options, where a field may be called like something else.
_FIELD = "field "


class Command(BaseCommand):
    """Say what an operation will do, do it, and say where the row stands then."""

    help = "Do what an operator may do to a request, DAG, site, ...: docs/operations.md lists it. Audited like every other way."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A sub-command for each resource, and below it for each operation."""
        of_resources = parser.add_subparsers(dest="resource", required=True, metavar="TYPE")
        for resource_type in resource_types():
            of_type = of_resources.add_parser(resource_type.name, help=", ".join(action.name for action in resource_type.actions))
            of_type.add_argument("row", metavar="NAME", help="the row's name or key")
            of_actions = of_type.add_subparsers(dest="operation", required=True, metavar="ACTION")
            for action in resource_type.actions:
                _options(of_actions.add_parser(action.name, help=action.does, description=action.does), action)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, or with ``--preview`` only tell. Raises CommandError: no such row, a field is wrong, or the operation is
        refused; nothing was done."""
        resource_type = next(resource_type for resource_type in resource_types() if resource_type.name == options["resource"])
        action = next(action for action in resource_type.actions if action.name == options["operation"])
        row, actor = _row(resource_type, options["row"]), actor_named(options["actor"])
        why = action.refused(row)
        reported = [why] if why else [*will_happen(action, [row])[row.pk], undone(resource_type, action)]
        self.stdout.write("\n".join([f"{row} is {decision_basis(action, row)[1]}.", *reported]))
        if options["preview"]:
            return
        serializer = input_serializer(action)(data={"reason": options["reason"], **_fields(action, row, options)})
        if not serializer.is_valid():
            raise CommandError(several(tuple(flattened(serializer.errors))))
        try:
            given = arguments(action, serializer.validated_data)
            if not action.repeated(row, actor, given):
                made = perform(action, row, actor, given)
                row = made if isinstance(made, resource_type.model) else next(iter(resource_type.find(options["row"])), None)
        except REFUSALS as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            if not lock_refused(error):
                raise
            raise CommandError(BEING_CHANGED) from error
        self.stdout.write(
            f"Done: {action.name}." + (f" {row} is {decision_basis(action, row)[1]} now." if row is not None else "")
        )


def _options(parser: ArgumentParser, action: Action) -> None:
    parser.add_argument("--reason", required=True, help="why; kept in the audit")
    parser.add_argument("--actor", help="the name in the audit (default: yours)")
    parser.add_argument("--preview", action="store_true", help="only say what would happen")
    for one in action.fields:
        parser.add_argument(
            f"--{one.name.replace('_', '-')}", dest=_FIELD + one.name, help=one.help.replace("%", "%%"), **_reading(one)
        )


def _reading(one: Field) -> dict[str, Any]:
    match one.kind:
        case Kind.FLAG:
            return {"action": BooleanOptionalAction, "default": None}
        case Kind.TEXTS | Kind.SITES | Kind.LFNS:
            return {"action": "append", "metavar": "TEXT"}
        case Kind.NOTES:
            return {"type": _json, "metavar": "JSON"}
        case Kind.CHOICE:
            return {"choices": [str(value) for value, _ in one.choices]}
    return {"metavar": one.kind.name}


def _fields(action: Action, row: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What was given, over what the row has; an empty text takes away a value that the row has or that may be missing. It is no
    value of what only narrows the operation, e.g. to one request."""
    initial, former = action.initial(row), action.former(row) if action.former else {}
    has = {name: value for name, value in initial.items() if value not in (None, "") and _FIELD + name in options}
    given = has | {one.name: options[_FIELD + one.name] for one in action.fields if options[_FIELD + one.name] is not None}
    optional = (one for one in action.fields if not one.required and one.kind not in (Kind.TEXT, Kind.NOTES))
    may_be_missing = {one.name for one in optional if one.blank is not OMIT or one.name in {*initial, *former}}
    return {name: value for name, value in given.items() if value not in ("", [""]) or name not in may_be_missing}


def _json(text: str) -> Any:
    try:
        return strict_json(text, "it")
    except ParseError as error:
        raise ArgumentTypeError(str(error.detail)) from error


def _row(resource_type: ResourceType, name: str) -> Any:
    try:
        rows = list(resource_type.find(name)[:2])
    except (ValidationError, ValueError) as error:
        raise CommandError(f"there is no {resource_type.name} {name}") from error
    if len(rows) != 1:
        raise CommandError(f"several rows are called {name}" if rows else f"there is no {resource_type.name} {name}")
    return rows[0]
