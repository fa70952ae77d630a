"""The page of one's own account: roles, tokens, service accounts; tokens are made and revoked here.

A new token is in the answer to the form alone: neither session nor messages, which are stored, have it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_POST, require_safe
from rest_framework.authtoken.models import Token as OldKey

from wms2.actions import Role
from wms2.errors import FieldRefused, InvalidTransition
from wms2.identities.browser_sessions import sessions_shown
from wms2.identities.grants import grants_of, roles_of
from wms2.identities.service_accounts import accounts_of
from wms2.identities.tokens import DAYS, MOST_DAYS, NewToken, old_key_end, own_token, token_make, token_revoke, tokens_of
from wms2.models import TokenScope

#: Roles that a token may be limited to; every token reads.
_ROLES = [(role.value, role.value) for role in Role if role is not Role.VIEWER]


class TokenForm(forms.Form):
    """What a new token is asked for by."""

    owner = forms.ChoiceField(label="For")
    name = forms.CharField(max_length=100, label="What it is for")
    scope = forms.ChoiceField(choices=TokenScope.choices, initial=TokenScope.READ, label="It may")
    roles = forms.MultipleChoiceField(
        choices=_ROLES, required=False, label="These roles", widget=forms.CheckboxSelectMultiple
    )  # fmt: skip
    days = forms.IntegerField(min_value=1, max_value=MOST_DAYS, initial=DAYS, label="Days until it expires")
    end_old_key = forms.BooleanField(required=False, label="End the owner's key of the old form")

    def __init__(self, accounts: list[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.accounts = {str(account.pk): account for account in accounts}
        choice: Any = self.fields["owner"]
        choice.choices = [(key, account.get_username()) for key, account in self.accounts.items()]
        if not self.is_bound:  # what is sent all the same is refused by name
            found = frozenset[Role]().union(*map(roles_of, accounts))
            offered: Any = self.fields["roles"]
            offered.choices = [each for each in _ROLES if each[0] in found]

    def new(self) -> NewToken:
        """Of what was sent."""
        data = self.cleaned_data
        roles = tuple(Role(role) for role in data["roles"])
        return NewToken(data["name"], TokenScope(data["scope"]), roles, data["days"])


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Who one is, and what one has."""
    return _page(request, TokenForm(accounts_of(request.user)))


@require_POST
@login_required
def token_new(request: HttpRequest) -> HttpResponse:
    """Make a token, and show it this once."""
    form = TokenForm(accounts_of(request.user), request.POST)
    if not form.is_valid():
        return _page(request, form, status=400)
    owner, actor = form.accounts[form.cleaned_data["owner"]], _actor(request)
    within = grants_of(request.user) if owner.pk == request.user.pk else None
    try:
        row, token = token_make(owner=owner, new=form.new(), actor=actor, within=within)
        if form.cleaned_data["end_old_key"] and OldKey.objects.filter(user=owner.pk).exists():
            old_key_end(owner=owner, actor=actor, reason=f"replaced by {row}")
    except FieldRefused as error:
        form.add_error(error.field, str(error))
        return _page(request, form, status=400)
    return _page(request, TokenForm(list(form.accounts.values())), made=row, token=token)


@require_POST
@login_required
def token_end(request: HttpRequest, prefix: str) -> HttpResponse:
    """Revoke one of one's own tokens or of one's service accounts'."""
    token = own_token(accounts_of(request.user), prefix)
    return _ended(request, partial(token_revoke, token=token), f"The token {token} is revoked.")


@require_POST
@login_required
def old_key(request: HttpRequest) -> HttpResponse:
    """End one's own key of the old form."""
    return _ended(request, partial(old_key_end, owner=request.user), "The key of the old form has ended.")


def _ended(request: HttpRequest, end: Callable[..., None], said: str) -> HttpResponse:
    """End something of one's own; back to the page, which says so, or why not."""
    try:
        end(actor=_actor(request), reason="by the owner, on the page")
    except InvalidTransition as error:
        messages.error(request, str(error))
    else:
        messages.success(request, said)
    return HttpResponseRedirect(reverse("account"))


def _page(request: HttpRequest, form: TokenForm, status: int = 200, **more: Any) -> HttpResponse:
    owners = list(form.accounts.values())
    context = {
        "form": form,
        "grants": [(grant.role, sorted(grant.groups), sorted(grant.sites)) for grant in grants_of(request.user)],
        "tokens": tokens_of(owners),
        "service_accounts": owners[1:],
        "old_keys": OldKey.objects.filter(user__in=owners).select_related("user").order_by("user"),
        "now": timezone.now(),
        "sessions": sessions_shown(request),
        **more,
    }
    response = render(request, "account.html", context, status=status)
    patch_cache_control(response, no_store=True)
    return response


def _actor(request: HttpRequest) -> str:
    return request.user.get_username()[:100]
