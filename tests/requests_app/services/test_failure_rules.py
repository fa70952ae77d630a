"""What operators do to failure rules: checked, audited, tried on recorded failures. And classify_failure."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from dags_app.failure_rules import failure_rules_load, rules_try
from dags_app.models import DAG, FailureRule, FailureSample
from dags_app.services import failure_rules as services
from dags_app.services.failures import failures_sweep
from requests_app.models import RequestStatus
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene_failures import line
from wms2.errors import ConfigurationError, InvalidTransition, StaleState
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
VALUES: dict[str, Any] = {
    "name": "our-8001", "order": 10, "first_code": 8001, "last_code": None, "message": "broke", "step": "", "site": "^T1_",
    "category": "permanent", "action": "permanent_failure", "cooloff_seconds": None, "memory_factor": None, "note": "",
}  # fmt: skip


@pytest.fixture
def rules() -> None:
    failure_rules_load()


@pytest.fixture
def recorded(tmp_path: Path, rules: None) -> DAG:
    """A DAG with three recorded failures."""
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)
    lines = [
        line(job_id="1.0"),
        line(job_id="2.0", site="T2_CH_CERN"),
        line(job_id="3.0", code=8009, rule="cms-8009", category="permanent"),
    ]
    (tmp_path / "failures.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    failures_sweep(dag)
    return dag


def last_audit() -> AuditEntry:
    return AuditEntry.objects.latest("id")


def test_a_rule_that_is_switched_off_or_taken_back_while_a_change_is_tried_stays_so(
    rules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = {"actor": "olga", "reason": "seen it before"}
    services.failure_rule_add(**VALUES, **by)

    def tried_while(meanwhile: Callable[[FailureRule], None]) -> None:
        row = FailureRule.objects.get(name="our-8001")
        with monkeypatch.context() as patch, pytest.raises(StaleState):
            patch.setattr(services, "pattern_refused", lambda _: meanwhile(FailureRule.objects.get(pk=row.pk)) or "")
            services.failure_rule_change(row=row, **{**VALUES, "site": "", "order": 11}, **by)

    tried_while(lambda row: services.failure_rule_enable(row=row, enabled=False, **by))
    assert not FailureRule.objects.get(name="our-8001").enabled
    services.failure_rule_enable(row=FailureRule.objects.get(name="our-8001"), enabled=True, **by)
    tried_while(lambda row: services.failure_rule_take_back(row=row, **by))
    assert not FailureRule.objects.filter(name="our-8001").exists()


def test_a_rule_of_our_own_is_audited(rules: None) -> None:
    row = services.failure_rule_add(**VALUES, actor="olga", reason="seen it before")
    assert (row.source, row.enabled) == ("operator", True)
    entry = last_audit()
    assert (entry.action, entry.target, entry.actor, entry.outcome) == ("failure_rule_add", "our-8001", "olga", "done")
    assert entry.evidence["new"]["message"] == "broke"


def test_a_shipped_rule_that_is_changed_is_the_operators_until_it_is_taken_back(rules: None) -> None:
    row = FailureRule.objects.get(name="cms-8021")
    values = {name: getattr(row, name) for name in services.FIELDS} | {"action": "retry"}
    services.failure_rule_change(row=row, **values, actor="olga", reason="files are fine")
    failure_rules_load()
    row.refresh_from_db()
    assert (row.action, row.source) == ("retry", "operator")
    assert (last_audit().evidence["old"]["action"], last_audit().evidence["new"]["action"]) == ("other_site", "retry")
    services.failure_rule_take_back(row=row, actor="olga", reason="they were not")
    assert FailureRule.objects.get(name="cms-8021").action == "other_site"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"message": "("}, "no regular expression"), ({"first_code": None, "message": "", "site": ""}, "condition"),
        ({"last_code": 7}, "codes_in_order"), ({"action": "more_memory", "category": "transient"}, "memory_factor"),
        ({"action": "retry"}, "not repeated"), ({"name": "cms-8021"}, "already exists"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_used_is_refused_and_the_refusal_audited(
    rules: None, changes: dict[str, Any], problem: str
) -> None:
    count = FailureRule.objects.count()
    with pytest.raises(ConfigurationError, match=problem):
        services.failure_rule_add(**VALUES | changes, actor="olga", reason="r")
    assert FailureRule.objects.count() == count
    assert last_audit().outcome == "refused"


CARELESS = (r"(\w+\s?)+: fatal", r"(x+x+)+y", r"([0-9]+)*#")


@pytest.mark.parametrize("text", CARELESS)
def test_an_expression_that_goes_back_and_forth_is_refused(rules: None, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"message: .* takes too long on messages that do not match"):
        services.failure_rule_add(**VALUES | {"message": text}, actor="olga", reason="r")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (r"(?>ab)c", "Python before 3.11"), (r"[+*]a*+b", "Python before 3.11"), (r"(x(?:a++))", "Python before 3.11"),
        ("a{99999999999999999999}", "no regular expression"),
    ],
)  # fmt: skip
def test_an_expression_that_submit_hosts_cannot_read_is_refused(rules: None, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        services.failure_rule_add(**VALUES | {"message": text}, actor="olga", reason="r")


def test_an_expression_of_good_will_is_taken(rules: None) -> None:
    services.failure_rule_add(**VALUES | {"message": r"[+*]\+[*+]+ (?i:fatal) .*: (?=x)"}, actor="olga", reason="it is none")


def test_a_careless_rule_of_a_former_release_ends_no_trial_and_can_be_switched_off(recorded: DAG) -> None:
    FailureSample.objects.update(message="Fatal exception while reading the file of the site that")
    row = services.failure_rule_add(**VALUES | {"site": ""}, actor="olga", reason="r")
    FailureRule.objects.filter(pk=row.pk).update(message=CARELESS[0], order=1)
    found = rules_try()
    assert (len(found), found.given_up) == (3, (CARELESS[0],))
    row.refresh_from_db()
    services.failure_rule_enable(row=row, enabled=False, actor="olga", reason="it takes too long")
    with pytest.raises(ConfigurationError, match="takes too long"):
        services.failure_rule_enable(row=row, enabled=True, actor="olga", reason="again")


def test_a_trial_that_takes_too_long_as_a_whole_is_given_up(recorded: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dags_app.rule_trial.TRIAL_SECONDS", 0.001)
    with pytest.raises(ConfigurationError, match="given up"):
        rules_try()


@pytest.mark.parametrize(
    ("does", "reported"),
    [
        ("echo at line 7 >&2; echo MemoryError >&2; exit 1", "MemoryError"),
        ("kill -9 $$", "exit status -9"),
        ("echo '{\"verdicts\": ['", "exit status 0"),
    ],
    ids=["error", "killed", "cut-off"],
)
def test_a_trial_that_breaks_is_told(
    recorded: DAG, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, reported: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr("dags_app.rule_trial.sys.executable", str(program))
    with pytest.raises(ConfigurationError, match=f"could not be tried: {reported}"):
        rules_try()


def test_a_rule_is_switched_off_and_on_and_only_ours_are_taken_back(rules: None) -> None:
    row = FailureRule.objects.get(name="cms-8021")
    with pytest.raises(InvalidTransition, match="as shipped"):
        services.failure_rule_take_back(row=row, actor="olga", reason="r")
    services.failure_rule_enable(row=row, enabled=False, actor="olga", reason="r")
    with pytest.raises(InvalidTransition, match="off already"):
        services.failure_rule_enable(row=row, enabled=False, actor="olga", reason="r")
    failure_rules_load()
    assert FailureRule.objects.get(name="cms-8021").enabled is False


def test_the_rules_in_force_are_tried_on_recorded_failures(recorded: DAG) -> None:
    assert [trial.changed for trial in rules_try()] == [False, False, False]
    services.failure_rule_add(**VALUES, actor="olga", reason="r")
    changed = [trial for trial in rules_try() if trial.changed]
    assert [(trial.sample.job_id, trial.verdict.rule, trial.verdict.category) for trial in changed] == [
        ("1.0", "our-8001", "permanent")
    ]


def test_a_rule_is_tried_before_it_is_switched_on(recorded: DAG) -> None:
    row = services.failure_rule_add(**VALUES, actor="olga", reason="r")
    services.failure_rule_enable(row=row, enabled=False, actor="olga", reason="not yet")
    assert [trial.changed for trial in rules_try()] == [False, False, False]
    assert [trial.sample.job_id for trial in rules_try(tried=row)] == ["1.0"]


def classified(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("classify_failure", *arguments, "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    assert set(found) == {"category", "code", "action", "bad_input_files", "rule"}
    return found


def test_classify_failure_uses_the_rules_of_the_database_or_the_shipped_ones(tmp_path: Path, rules: None) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<FrameworkJobReport><FrameworkError ExitStatus="8001" Type="X">it broke</FrameworkError></FrameworkJobReport>'
    )
    services.failure_rule_add(**VALUES | {"site": ""}, actor="olga", reason="r")
    assert classified("--report", str(report))["rule"] == "our-8001"
    assert classified("--report", str(report), "--shipped") == {
        "category": "transient", "code": 8001, "action": "retry", "bad_input_files": [], "rule": "cms-8001",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("no report at all", "is cut off or damaged"),
        ("<html><body>404</body></html>", "no FrameworkJobReport: its first element is html"),
        ("<FrameworkJobReport><File>", "the report is cut off"),
        ('{"schema": "wms2.report/1", "exit', "is cut off or damaged"),
        ('{"steps_of": "something"}', "is no job report of a known form"),
        ("[1, 2]", "is no job report"),
    ],
    ids=["empty", "text", "another xml", "cut off xml", "cut off json", "another json", "a list"],
)
def test_classify_failure_says_what_is_wrong_with_a_report(
    tmp_path: Path, rules: None, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    report, out = tmp_path / "report", io.StringIO()
    report.write_text(text)
    call_command("classify_failure", "--report", report, "--json", stdout=out)
    reported = capsys.readouterr().err
    assert (json.loads(out.getvalue())["category"], json.loads(out.getvalue())["code"]) == ("transient", 99303)
    assert f"{report}: " in reported
    assert problem in reported


def test_classify_failure_ends_with_an_error_when_there_is_nothing_to_judge_by(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"absent\.xml: no such file"):
        call_command("classify_failure", "--shipped", "--report", str(tmp_path / "absent.xml"))


def test_classify_failure_names_a_stderr_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line, as Django itself would end it."""
    absent = str(tmp_path / "absent.err")
    command = load_command_class("requests_app", "classify_failure")
    with pytest.raises(SystemExit):
        command.run_from_argv(["manage.py", "classify_failure", "--shipped", "--report", absent, "--stderr", absent])
    assert f"{absent}: no such file" in capsys.readouterr().err


def test_classify_failure_judges_by_exit_code_and_stderr_where_the_report_is_missing(tmp_path: Path, rules: None) -> None:
    stderr = tmp_path / "err"
    stderr.write_text("write: No space left on device\n")
    absent = str(tmp_path / "absent.xml")
    assert classified("--report", absent, "--exit-code", "137")["code"] == 137
    assert classified("--report", absent, "--exit-code", "1", "--stderr", str(stderr))["rule"] == "scratch-disk-full"
    with pytest.raises(CommandError, match="no such file"):
        call_command("classify_failure", "--report", absent, "--stderr", absent)
    out = io.StringIO()
    call_command("classify_failure", "--report", absent, "--exit-code", "8009", stdout=out)
    assert out.getvalue().startswith("permanent: permanent_failure (rule cms-8009)")
