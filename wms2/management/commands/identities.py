"""``manage.py identities``: the first administrator, users, their roles. Audited like every other way (docs/identities.md)."""

from __future__ import annotations

import getpass
import secrets
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError

from wms2.actions import Role
from wms2.errors import FieldRefused, InvalidTransition
from wms2.identities import people
from wms2.identities.grants import OPERATORS, Grant, described, grants_of
from wms2.management.arguments import actor_named
from wms2.models import RoleAssignment

_GENERATED_BYTES = 18


class Command(BaseCommand):
    """One sub-command each; what is refused ends with 1 and says why, and nothing was done."""

    help = "Make the first administrator and users, give and take roles, end accounts, list who has what."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A sub-command for each thing to do."""
        commands = parser.add_subparsers(dest="do", required=True, metavar="COMMAND")
        for name, does in (
            ("administrator", "make this user an administrator, who may do everything; repeatable"),
            ("create", "make a user, who may read"),
        ):
            made = _named(commands, name, does)
            password = made.add_mutually_exclusive_group()
            password.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
            password.add_argument("--generate", action="store_true", help="make a password and print it, once")
            password.add_argument("--no-password", action="store_true", help="they sign in by another door")
        give = _named(commands, "give", "give a role, with its limits in place of former ones", "user, or group with --to-group")
        give.add_argument("--groups", nargs="+", default=[], metavar="GROUP", help="of a requester: CMS groups")
        give.add_argument("--sites", nargs="+", default=[], metavar="SITE", help="of a site admin")
        take = _named(commands, "take", "take a role away", "user, or group with --to-group")
        for each in (give, take):
            each.add_argument("role", choices=[role.value.replace(" ", "-") for role in Role])
            each.add_argument("--to-group", action="store_true", help="NAME is a Django group; give makes it if there is none")
        _named(commands, "deactivate", "let a user sign in no more")
        _named(commands, "activate", "let a user sign in again")
        commands.add_parser("list", help="all users and groups with their roles")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it. Raises CommandError: why not."""
        if options["do"] == "list":
            self._list()
            return
        who = {"actor": actor_named(options["actor"]), "reason": options["reason"]}
        try:
            getattr(self, f"_{options['do']}")(options, who)
        except FieldRefused as error:
            raise CommandError(f"{error.field}: {error}") from error
        except InvalidTransition as error:
            raise CommandError(str(error)) from error

    def _administrator(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        people.administrator_ensure(name=options["name"], password=self._password(options), **who)
        self.stdout.write(f"{options['name']} is an administrator.")

    def _create(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        people.user_create(name=options["name"], password=self._password(options), **who)
        self.stdout.write(f"{options['name']} is made, and may read; `identities give` gives a role.")

    def _give(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        limits = {"cms_groups": options["groups"], "sites": options["sites"]}
        row = people.role_give(role=_role(options), holder=_holder(options, make=True), **limits, **who)
        self.stdout.write(f"{options['name']} has the role {_described(row)}.")

    def _take(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        people.role_take(role=_role(options), holder=_holder(options, make=False), **who)
        self.stdout.write(f"{options['name']} has the role {_role(options)} no longer.")

    def _deactivate(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        people.user_deactivate(user=_user(options["name"]), **who)
        self.stdout.write(f"{options['name']} can sign in no more.")

    def _activate(self, options: dict[str, Any], who: dict[str, Any]) -> None:
        people.user_activate(user=_user(options["name"]), **who)
        self.stdout.write(f"{options['name']} can sign in again.")

    def _list(self) -> None:
        for user in get_user_model().objects.order_by("username"):
            roles = "; ".join(described(grant) for grant in grants_of(user) if grant.role is not Role.VIEWER) or Role.VIEWER
            self.stdout.write(f"{user}: {roles if user.is_active else 'not active'}")
        for group in Group.objects.prefetch_related("role_assignments").order_by("name"):
            roles = "; ".join(map(_described, group.role_assignments.all()))
            self.stdout.write(f"group {group}: {roles or ('operator' if group.name == OPERATORS else 'no role given')}")

    def _password(self, options: dict[str, Any]) -> str | None:
        """As the options say where it comes from; by default it is asked for, twice."""
        if options["no_password"]:
            return None
        if options["generate"]:
            password = secrets.token_urlsafe(_GENERATED_BYTES)
            self.stdout.write(f"password: {password}")
            return password
        if options["password_stdin"]:
            return sys.stdin.readline().rstrip("\r\n")
        if not sys.stdin.isatty():
            raise CommandError("no terminal to ask for the password: give --password-stdin, --generate or --no-password")
        password = getpass.getpass("Password: ")
        if password != getpass.getpass("Again: "):
            raise CommandError("the two passwords differ; nothing was done")
        return password


def _named(commands: Any, name: str, does: str, whose: str = "user's name") -> ArgumentParser:
    parser: ArgumentParser = commands.add_parser(name, help=does, description=does)
    parser.add_argument("name", metavar="NAME", help=whose)
    parser.add_argument("--reason", default="", help="why; stands in the audit")
    parser.add_argument("--actor", help="the name in the audit (default: yours)")
    return parser


def _described(row: RoleAssignment) -> str:
    return described(Grant(Role(row.role), frozenset(row.cms_groups), frozenset(row.sites)))


def _role(options: dict[str, Any]) -> Role:
    return Role(options["role"].replace("-", " "))


def _user(name: str) -> Any:
    user = get_user_model().objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"there is no user {name}; `identities list` names all")
    return user


def _holder(options: dict[str, Any], make: bool) -> Any:
    if not options["to_group"]:
        return _user(options["name"])
    if make:
        return Group.objects.get_or_create(name=options["name"])[0]
    group = Group.objects.filter(name=options["name"]).first()
    if group is None:
        raise CommandError(f"there is no group {options['name']}; `identities list` names all")
    return group
