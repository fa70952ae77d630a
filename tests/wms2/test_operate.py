"""``manage.py operate``: every declared operation from the command line, with its preview, its refusals and the audit."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from dags_app.failure_rules import failure_rules_load
from dags_app.models import FailureRule
from outputs_app.models import Placement
from requests_app.models import Limit, Request, RequestStatus
from sites_app.bans import bans_active
from sites_app.models import Pool, Site, SiteStatus
from tests.support.rows import request_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus


def operate(*words: str) -> str:
    out = StringIO()
    call_command("operate", *words, stdout=out)
    return out.getvalue()


def status(request: Request) -> str:
    return Request.objects.values_list("status", flat=True).get(pk=request.pk)


def test_it_says_what_will_happen_does_it_and_says_what_is_now() -> None:
    request = request_row(S.QUEUED)
    said = operate("request", request.request_name, "hold", "--reason", "look first", "--actor", "olga")
    assert f"{request.request_name} is Queued.\nIt is held at once." in said
    assert said.endswith(f"Done: hold. {request.request_name} is Held now.\n")
    entry = AuditEntry.objects.get(target=request.request_name)
    assert (entry.actor, entry.action, entry.reason) == ("olga", "request_hold", "look first")


def test_a_preview_changes_nothing() -> None:
    request = request_row(S.QUEUED)
    assert "It is aborted at once." in operate("request", request.request_name, "abort", "--reason", "x", "--preview")
    assert status(request) == S.QUEUED


def test_a_refusal_is_told_and_audited() -> None:
    request = request_row(S.ACTIVE)
    with pytest.raises(CommandError, match="It is Active; only a held request can be released"):
        operate("request", request.request_name, "release", "--reason", "x")
    assert AuditEntry.objects.get(target=request.request_name).outcome == "refused"


def test_fields_are_judged_by_the_bounds_of_the_declaration() -> None:
    request = request_row(S.QUEUED)
    with pytest.raises(CommandError, match=r"priority: .*999999"):
        operate("request", request.request_name, "priority", "--reason", "x", "--priority", "1000000")
    operate("request", request.request_name, "priority", "--reason", "x", "--priority", "90")
    request.refresh_from_db()
    assert request.priority == 90


def test_a_field_that_names_what_is_not_there_is_told() -> None:
    Site.objects.create(name="T2_CH_CERN")
    with pytest.raises(CommandError, match="no such request, or it has no workflow yet"):
        operate("site", "T2_CH_CERN", "ban", "--reason", "x", "--request-name", "nobody_has_it")


def test_sites_and_limits_have_their_verbs() -> None:
    Site.objects.create(name="T2_CH_CERN")
    operate("site", "T2_CH_CERN", "drain", "--reason", "downtime", "--until", "2126-01-01T08:00:00Z")
    site = Site.objects.get(name="T2_CH_CERN")
    assert (site.status, site.drain_until is not None) == (SiteStatus.DRAINING, True)
    operate("site", "T2_CH_CERN", "note", "--reason", "x", "--notes", '{"contact": "olga"}')
    assert Site.objects.get(name="T2_CH_CERN").config_data == {"contact": "olga"}
    operate("limit", "max_active_dags", "change", "--reason", "x", "--value", "7")
    assert Limit.objects.get(name="max_active_dags").value == 7


def test_rows_and_verbs_that_are_not_there_are_named() -> None:
    with pytest.raises(CommandError, match="there is no request nobody_has_it"):
        operate("request", "nobody_has_it", "hold", "--reason", "x")
    with pytest.raises(CommandError, match="invalid choice: 'promote'"):
        operate("request", "r", "promote", "--reason", "x")


def test_a_field_may_be_called_as_an_argument_of_the_command() -> None:
    failure_rules_load()
    rule = FailureRule.objects.filter(last_code__isnull=False).first()
    assert rule is not None
    operate("failure-rule", rule.name, "copy", "--reason", "x", "--name", "ours")
    copy = FailureRule.objects.get(name="ours")
    assert (copy.first_code, copy.last_code) == (rule.first_code, rule.last_code)
    assert operate("failure-rule", "ours", "change", "--reason", "x", "--last-code", "").count("Done: change.") == 1
    copy.refresh_from_db()
    assert (copy.first_code, copy.last_code) == (rule.first_code, None)


@pytest.mark.parametrize("actor", ["", " ", "x" * 101])
def test_nothing_is_done_in_a_name_that_the_audit_cannot_keep(actor: str) -> None:
    request = request_row(S.QUEUED)
    with pytest.raises(CommandError, match="--actor: give a name of at most 100 characters"):
        operate("request", request.request_name, "hold", "--reason", "x", "--actor", actor)
    assert status(request) == S.QUEUED


def test_notes_are_json_that_the_database_takes() -> None:
    Site.objects.create(name="T2_CH_CERN")
    with pytest.raises(CommandError, match="notes"):
        operate("site", "T2_CH_CERN", "note", "--reason", "x", "--notes", '{"a": NaN}')


def test_what_a_row_has_beside_the_fields_of_an_operation_is_not_given_to_it() -> None:
    row = Placement.objects.create(campaign="Run3", tier="AOD", tape=True, disk_days=7)
    operate("placement", str(row.pk), "change", "--reason", "x", "--disk-days", "3")
    row.refresh_from_db()
    assert (row.tape, row.disk_days) == (True, 3)


def test_what_was_set_for_a_request_is_taken_away_by_an_empty_text() -> None:
    Pool.objects.create(name="pool-1", collector="pool-1:9618", file_system="one")
    request = request_row(S.QUEUED)
    limits = ("--max-merge", "5", "--max-processing", "100")
    operate("request", request.request_name, "throttle", "--reason", "x", *limits)
    operate("request", request.request_name, "pools", "--reason", "x", "--pools", "pool-1")
    operate("request", request.request_name, "throttle", "--reason", "x", "--max-merge", "")
    request.refresh_from_db()
    assert request.overrides == {"max_processing": 100, "pools": ["pool-1"]}
    operate("request", request.request_name, "pools", "--reason", "x", "--pools", "")
    request.refresh_from_db()
    assert request.overrides == {"max_processing": 100}


def test_a_flag_that_is_set_can_be_taken_away() -> None:
    row = Placement.objects.create(campaign="Run3", tier="AOD", tape=True, disk_days=7)
    operate("placement", str(row.pk), "change", "--reason", "x", "--no-tape")
    row.refresh_from_db()
    assert (row.tape, row.disk_days) == (False, 7)


@pytest.mark.parametrize(
    ("action", "option"), [("unban", "--request-name"), ("ban", "--request-name"), ("ban", "--expires-at"), ("drain", "--until")]
)
def test_an_empty_text_for_what_narrows_an_operation_is_refused_and_does_not_widen_it(action: str, option: str) -> None:
    """As from a variable of the shell that is not set."""
    site = Site.objects.create(name="T2_CH_CERN")
    operate("site", site.name, "ban", "--reason", "broken", "--insist")
    with pytest.raises(CommandError, match=option.strip("-").replace("-", "_")):
        operate("site", site.name, action, "--reason", "x", option, "")
    assert bans_active(site.name).count() == 1


def test_notes_that_are_an_empty_text_are_refused() -> None:
    Site.objects.create(name="T2_CH_CERN")
    with pytest.raises(CommandError, match="notes"):
        operate("site", "T2_CH_CERN", "note", "--reason", "x", "--notes", '""')
