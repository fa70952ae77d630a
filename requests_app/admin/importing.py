"""The admin's page for importing a request: by its name at ReqMgr2, or by document. Checked and stored as over REST."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from rest_framework.exceptions import ParseError

from requests_app.api.inputs import import_serializer
from requests_app.models import Request
from requests_app.services.decisions import MAX_PRIORITY
from requests_app.services.intake import request_receive
from wms2.api.parsers import StrictJsonParser
from wms2.api.permissions import operators_alone
from wms2.api.problems import ProblemError
from wms2.api.serializers import MAX_REASON
from wms2.conf import conf
from wms2.errors import DocumentRefused, InvalidTransition, Problem, RequestKnown, ServiceError
from wms2.identities.denials import import_refusals_recorded


class ImportForm(forms.Form):
    """A name or a document, and how it is to be taken."""

    request_name = forms.CharField(
        required=False, max_length=150, help_text="At ReqMgr2, which is asked for the document; with a document, its name here."
    )
    file = forms.FileField(required=False, help_text="The document: whole, or a createRequest and assignRequest pair.")
    document = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 12, "cols": 100, "spellcheck": "false"}), help_text="Or its text."
    )
    priority = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_PRIORITY, help_text="Instead of the document's; 0 to 999999."
    )
    urgent = forms.BooleanField(required=False, help_text="Before all that is not urgent.")
    adaptive = forms.BooleanField(required=False, help_text="In rounds, each sized by what those before measured.")
    family_of = forms.CharField(
        required=False, max_length=150, help_text="A request into whose output datasets it may write, e.g. one it recovers."
    )
    family_reason = forms.CharField(required=False, max_length=MAX_REASON, help_text="Why it may; kept in the audit.")
    in_group = forms.CharField(required=False, max_length=150, help_text="A group of requests that it completes together with.")
    depends_on = forms.CharField(required=False, help_text="Requests that complete before it begins, separated by spaces.")
    pools = forms.CharField(required=False, help_text="HTCondor pools that its DAGs may go to, separated by spaces; none: all.")
    submit = forms.BooleanField(required=False, initial=True, help_text="Off: stored as new, and left alone until submitted.")

    def clean(self) -> dict[str, Any]:
        """What a REST client would have sent; ``received`` is what the service takes."""
        given = dict(super().clean() or {})
        text = given["file"].read() if given.get("file") else given.get("document", "").encode()
        if given.get("file") and given.get("document"):
            raise forms.ValidationError("Give a file or a text, not both.")
        if not text and not given.get("request_name"):
            raise forms.ValidationError("Give a name at ReqMgr2, or a document.")
        given |= {name: given.get(name, "").split() for name in ("depends_on", "pools")}
        documents = ("file", "document")
        data = {name: value for name, value in given.items() if name not in documents and value not in (None, "", [])}
        if text:
            try:
                data["document"] = StrictJsonParser().parse(BytesIO(text))
            except (ParseError, ProblemError) as error:
                raise forms.ValidationError(str(error)) from error
        serializer = import_serializer(data)
        if not serializer.is_valid():
            reported = {field: " ".join(map(str, found)) for field, found in serializer.errors.items()}
            raise forms.ValidationError([f"{field}: {problem}" for field, problem in reported.items()])
        return {**given, "received": serializer.received()}


def import_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Ask (GET), then import (POST); a refusal lists every problem by field, and nothing is stored."""
    if why := operators_alone(request.user):
        raise PermissionDenied(why)
    form = (
        ImportForm(request.POST, request.FILES)
        if request.method == "POST"
        else ImportForm(initial={"adaptive": conf().adaptive_default})
    )
    problems: list[Problem] = []
    known: Request | None = None
    if form.is_bound and form.is_valid():
        try:
            received, actor = form.cleaned_data["received"], request.user.get_username()[:100]
            with import_refusals_recorded(actor, request, received.name):
                row = request_receive(received=received, actor=actor)
            return HttpResponseRedirect(row.get_absolute_url())
        except DocumentRefused as refused:
            problems = list(refused.problems)
            if isinstance(refused, RequestKnown):
                known = Request.objects.get(request_name=refused.request_name)
        except (InvalidTransition, ServiceError) as error:
            problems = [Problem("", str(error))]
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Import a request",
        "opts": Request._meta,
        "form": form,
        "problems": problems,
        "known": known,
        "media": model_admin.media,
    }
    return TemplateResponse(request, "admin/wms2/import.html", context, status=400 if form.is_bound else 200)
