"""Bind a user of WMS2 to a subject of single sign-on, or remove the binding."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from wms2.audit import audit
from wms2.identities.sso_issuer import PROVIDER
from wms2.management.arguments import actor_named, user_named
from wms2.models import SsoSession


class Command(BaseCommand):
    """Who signs in as the subject from then on is that user. The sessions that another user began by it end."""

    help = "Bind a user to a subject (`sub`) of single sign-on; the page that refuses a sign-in names both."

    def add_arguments(self, parser: CommandParser) -> None:
        """Both names."""
        parser.add_argument("user", help="name of a user of WMS2")
        parser.add_argument("subject", nargs="?", default="", help="the `sub` by which the issuer knows the same person")
        parser.add_argument("--remove", action="store_true", help="the user is bound to no subject any more")

    def handle(self, *args: Any, **options: Any) -> None:
        """Both are bound, or no longer, and the audit says who did it."""
        user = user_named(options["user"])
        if bool(options["subject"]) == options["remove"]:
            raise CommandError("name the subject to bind the user to it, or --remove to end the binding")
        if options["remove"]:
            self._remove(user)
            return
        if hasattr(user, "service_account"):
            raise CommandError(f"{user} is a service account, which ends with its owner and has tokens; bind a person.")
        others = SocialAccount.objects.filter(provider=PROVIDER, user=user).exclude(uid=options["subject"])
        if other := others.first():
            raise CommandError(f"{user} is bound to the subject {other.uid} already; a user has one.")
        with transaction.atomic():
            SocialAccount.objects.update_or_create(provider=PROVIDER, uid=options["subject"], defaults={"user": user})
            SsoSession.objects.filter(subject=options["subject"]).exclude(user=user).delete()
            audit(
                actor=f"{actor_named(None)} (sso_connect)", action="sso_connect", target_type="user", target=user,
                reason="the same person, says who ran the command", subject=options["subject"],
            )  # fmt: skip
        self.stdout.write(f"{user} signs in by single sign-on as {options['subject']}")

    def _remove(self, user: Any) -> None:
        """Sessions that began by the binding end with it."""
        bound = SocialAccount.objects.filter(provider=PROVIDER, user=user)
        subject = bound.values_list("uid", flat=True).first()
        if subject is None:
            raise CommandError(f"{user} is not bound to a subject of single sign-on")
        with transaction.atomic():
            bound.delete()
            SsoSession.objects.filter(user=user).delete()
            audit(
                actor=f"{actor_named(None)} (sso_connect)", action="sso_disconnect", target_type="user", target=user,
                reason="the binding is removed, says who ran the command", subject=subject,
            )  # fmt: skip
        self.stdout.write(f"{user} is bound to no subject any more; sessions by single sign-on have ended")
