"""Writes ``docs/operations.md`` from the declarations of the apps: ``python -m deploy.docs.actions``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploy.docs import written

if TYPE_CHECKING:  # models can only be imported after the set-up
    from wms2.actions import Action, Field, ResourceType

TARGET = written.DOCS / "operations.md"
HEAD = """\
# Operations

What an operator may do to a row. Each operation asks for a reason (a `PATCH` may go without), which stands in the audit
with the operator's name; a refusal is audited too. One declaration makes the address of the REST interface, the button of the
admin and of the request's page with its page of confirmation, the action of the admin's list, and `make manage ARGS='operate
TYPE NAME ACTION --reason "..."'` ([ADR 0027](adr/0027-operations-and-the-admin.md)). [`api.md`](api.md) says how answers and
errors look; there `PATCH` changes a request's priority and production steps, a site's status and notes, and the limits.

A form shows the reason and the usual fields, with the button; the others are folded below their theme. What was typed is checked
as over REST: names of sites and LFNs have one rule for all doors. After an operation one is back where one was, with what was
done and, where it can be undone, the way back.

Roles are any that may do it: requesters on requests of their own and of their groups, site admins on their sites, both on bulk
runs that they have begun; admins may do all ([users and roles](identities.md)). *Many rows*: a
[bulk run](api.md#many-rows-at-once) may do it to all rows of a filter or to a list of them, with a result for each.

This page is written by `python -m deploy.docs.actions`; edit the declarations in each app (`actions.py`).
"""


def page() -> str:
    """The whole page."""
    from wms2.actions import resource_types

    return "\n".join([HEAD, *(line for resource_type in resource_types() for line in _resource_type(resource_type))])


def _resource_type(resource_type: ResourceType) -> Iterator[str]:
    from wms2.actions import undone

    yield f"## {resource_type.name}\n"
    yield "| operation | what it does | roles | many rows | REST | button |"
    yield "|---|---|---|---|---|---|"
    for action in resource_type.actions:
        computed = " What it would do is computed for each row." if action.preview else ""
        does = f"{action.does} {undone(resource_type, action)}{computed}"
        button = action.label if action.admin else "–"
        many = "yes" if action.many else "no"
        yield f"| `{action.name}` | {does} | {', '.join(action.roles)} | {many} | {_address(resource_type, action)} | {button} |"
    yield ""
    fields = [(action, field) for action in resource_type.actions for field in action.fields]
    if fields:
        yield "| operation | field | takes | meaning | in forms |"
        yield "|---|---|---|---|---|"
        for action, field in fields:
            place = "in sight" if field in action.fields_in_sight else f"below *{field.theme}*"
            called = f"`{field.name}`" + (f" ({field.label})" if field.label else "")
            yield f"| `{action.name}` | {called} | {_takes(field)} | {_means(field)} | {place} |"
        yield ""


def _address(resource_type: ResourceType, action: Action) -> str:
    if action.path is None:
        return "–"
    place = resource_type.address.replace("<", "{").replace(">", "}")
    words = [part.partition(":")[2] if part.startswith("{") else part for part in place.split("/")]
    place = "/".join(f"{{{word[:-1]}}}" if word.endswith("}") else word for word in words)
    return f"`{action.method.upper()} /api/v1/{place}{'/' if action.path else ''}{action.path}`"


def _takes(field: Field) -> str:
    parts = [field.kind.value]
    if field.choices:
        parts = ["one of " + ", ".join(f"`{value}`" for value, _ in field.choices)]
    if field.most is not None:
        parts.append(f"{field.least or 0:g} to {field.most:,}")
    elif field.least is not None:
        parts.append(f"at least {field.least}")
    if field.length is not None:
        parts.append(f"up to {field.length} characters")
    if field.most_items is not None:
        parts.append(f"at most {field.most_items}")
    if field.required:
        parts.append("required")
    elif field.default is not None:
        parts.append(f"`{field.default}` without it")
    if field.roles:
        parts.append(f"by the role {' or '.join(field.roles)} alone")
    return ", ".join(parts)


def _means(field: Field) -> str:
    return field.help or "; ".join(label for _, label in field.choices)


if __name__ == "__main__":
    written.run(TARGET, page)
