"""A pasted list of files that were lost: what is concerned, and having it made again, as over REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from outputs_app.models import OutputFile
from requests_app.pages.rendering import page
from requests_app.services.lost_files import MOST_FILES, LostPlan, lost_files_make_again, lost_files_plan
from wms2.api.serializers import MAX_REASON
from wms2.errors import InvalidTransition, StaleState
from wms2.identities.grants import is_operator
from wms2.web.formatting import counted

#: Files whose places are listed; the plan names all.
MOST_LISTED = 100


class LostFiles(NamedTuple):
    """What was pasted, what is wrong with it or was refused, what is concerned, and where the first of the files are."""

    lfns: Sequence[str] = ()
    reason: str = ""
    errors: Sequence[str] = ()
    plan: LostPlan | None = None
    files: Sequence[OutputFile] = ()

    @property
    def pasted(self) -> str:
        """One a line."""
        return "\n".join(self.lfns)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def lost_files(request: HttpRequest) -> HttpResponse:
    """The list (GET), what is concerned (POST), and with ``confirm`` and a reason having it made again."""
    if not is_operator(request.user):
        raise PermissionDenied("only users with the role operator or admin may have lost files made again")
    if request.method != "POST":
        return _page(request, LostFiles())
    lfns = list(dict.fromkeys(request.POST.get("files", "").replace("\0", " ").split()))
    given = LostFiles(lfns, request.POST.get("reason", "").replace("\0", " ").strip(), _wrong(lfns))
    if given.errors:
        return _page(request, given, status=400)
    if "confirm" not in request.POST:
        return _page(request, _previewed(given))
    if not 0 < len(given.reason) <= MAX_REASON:
        why = f"Say why: a reason of at most {MAX_REASON:,} characters is required."
        return _page(request, _previewed(given._replace(errors=[why])), status=400)
    actor = request.user.get_username()[:100]
    try:
        plan = lost_files_make_again(lfns=lfns, confirm=request.POST["confirm"], actor=actor, reason=given.reason)
    except (InvalidTransition, StaleState) as error:
        return _page(request, _previewed(given._replace(errors=[str(error)])), status=409)
    number = sum(len(each.files) for each in plan.requests)
    messages.success(request, f"{counted(number, 'file')} of {counted(len(plan.requests), 'request')} will be made again.")
    return HttpResponseRedirect(reverse("cases"))


def _wrong(lfns: Sequence[str]) -> list[str]:
    if not lfns:
        return ["Paste the names of files, one a line."]
    if len(lfns) > MOST_FILES:
        return [f"At most {MOST_FILES:,} files at once; these are {len(lfns):,}."]
    return [f"{lfn[:200]} is no LFN." for lfn in lfns if not lfn.startswith("/store/") or len(lfn) > 700][:10]


def _previewed(given: LostFiles) -> LostFiles:
    files = OutputFile.objects.filter(lfn__in=given.lfns[:MOST_LISTED]).select_related("block__workflow", "unit")
    listed = list(files.defer("lumis", "parents", "block__failure_context").order_by("lfn"))
    return given._replace(plan=lost_files_plan(given.lfns), files=listed)


def _page(request: HttpRequest, seen: LostFiles, status: int = 200) -> HttpResponse:
    return page(request, "requests/lost_files", {"seen": seen, "section": "cases"}, status=status)
