"""Buttons on a request's page: the verbs that apply to it now, each leading to the admin's page of confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from requests_app.models import Request
from wms2.admin.verbs import verb_url, verbs_of


@dataclass(frozen=True, slots=True)
class VerbLink:
    """One button."""

    label: str
    url: str
    dangerous: bool


def verb_links(request: Request) -> list[VerbLink]:
    """In the order of their registration."""
    verbs = [verb for verb in verbs_of(Request) if not verb.refuses(request)]
    return [VerbLink(verb.label, verb_url(Request, verb.name, [request.pk]), verb.dangerous) for verb in verbs]
