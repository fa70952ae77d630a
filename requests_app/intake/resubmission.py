"""ReqMgr2's ``Resubmission`` (ACDC): what of another request is missing is to be done (ADR 0024). Pure.

Which failed jobs WMAgent has listed is not read: WMS2's own account of the original says what is missing. Its configuration and
splitting are the original's too; of the document count name, priority, site lists and memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from requests_app.intake import lexicon
from requests_app.intake.draft import Identity
from requests_app.intake.parse import whole_document
from requests_app.intake.resources import read_sites
from requests_app.intake.steps import read_identity, read_request_name
from requests_app.intake.values import is_set, name, text, whole

RESUBMISSION = "Resubmission"
#: Of WMAgent's list; stored with the request, and not used.
_ACDC = ("InitialTaskPath", "CollectionName", "ACDCServer", "ACDCDatabase")


@dataclass(frozen=True, slots=True)
class Resubmission:
    """What such a document asks for; None where it says nothing."""

    request_name: str
    original: str
    identity: Identity
    priority: int | None
    site_whitelist: tuple[str, ...]
    site_blacklist: tuple[str, ...]
    memory_mb: int | None
    acdc: dict[str, str]


def read_resubmission(raw: object, *, request_name: str | None) -> Resubmission | None:
    """None for a document of another type.

    Raises:
        DocumentRefused: with every problem that can be seen without looking at the original.
    """
    document = whole_document(raw)
    if document.own.get("RequestType") != RESUBMISSION:
        return None
    identity, (white, black) = read_identity(document, RESUBMISSION), read_sites(document, lexicon.SITE)
    memory = document.own.get("Memory")
    found = Resubmission(
        request_name=read_request_name(document, request_name),
        original=document.require("OriginalRequestName", name(lexicon.REQUEST_NAME), ""),
        identity=identity,
        priority=identity.priority if is_set(document.own.get("RequestPriority")) else None,
        site_whitelist=white,
        site_blacklist=black,
        memory_mb=document.read("Memory", whole(1, 10**7), 0) if is_set(memory) and not isinstance(memory, dict) else None,
        acdc={field: document.read(field, text(1000), "") for field in _ACDC if is_set(document.own.get(field))},
    )
    document.findings.refuse_if_any()
    return found
