"""One request's page: why it stands where it stands, what happens next, its work, its history; at the same cost for any size."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitState
from outputs_app.models import BlockStatus, BlockValidation, Comparison, Effect, EffectKind, EffectState, StorageCheck
from requests_app.models import Request, RequestGroup, RequestStatus, RequestWatch, StopIntent
from requests_app.pages.request import MOST_DRIFT, request_page
from requests_app.pages.units import MOST_UNITS
from tests.support.html import links, text
from tests.support.rows import dag_row, drift_row, new_block, request_row, unit_row, workflow_row
from tests.support.scene import Scene
from tests.support.statements import statements_of
from wms2.actions import buttons_of, decision_basis

pytestmark = pytest.mark.django_db
S = RequestStatus
#: session, user; request; workflow, its standing, account, rounds (3), sites, units, DAGs; history, audit, effects (2),
#: differences, versions, names of those it depends on, of those that depend on it, and of datasets, validation;
#: the life cycle's lease, for the dot; failures of the DAG's directory and of the workflow, these by site too
PAGE_QUERIES = 7


def page(client: Client, request: Request, part: str | None = None) -> str:
    response = client.get(f"/requests/{request.request_name}/")
    assert response.status_code == 200, response.content[:500]
    return text(response.content.decode(), part)


def test_a_held_request_says_why_what_happens_next_and_what_to_do(reader: Client, built: Scene) -> None:
    said = page(reader, built.held, "part-head")
    assert "Too many failed work units: 33 of 120 work units were not done" in said
    assert "Next: Nothing, until an operator releases or aborts it." in said
    assert "To do: Look at the failures" in said
    assert "Warning: TimePerEvent is the requester's guess" in said


def test_a_stopping_request_says_what_it_will_become(reader: Client) -> None:
    request = request_row(S.STOPPING, stop_intent=StopIntent.HOLD)
    assert "once queue and history prove it gone, it is held." in page(reader, request, "part-head")


def test_a_request_without_a_workflow_has_no_progress(reader: Client, built: Scene) -> None:
    said = page(reader, built.new)
    assert "There is no workflow yet" in said
    assert "Ledger" not in said


def test_a_dag_whose_stored_counts_are_no_numbers_breaks_neither_page_nor_rest(staff: Client) -> None:
    dag = dag_row(workflow_row(request_row(S.ACTIVE)), DAGStatus.RUNNING, total_work_units=10, total_nodes=110)
    DAG.objects.filter(pk=dag.pk).update(node_counts={"Processing": "eighty", "Merge": 10})
    request = dag.workflow.request
    page(staff, request)
    answers = [staff.get(f"/api/v1/workflows/{dag.workflow_id}/status"), staff.get(f"/api/v1/dags/{dag.pk}")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["dag"]["node_counts"] == {"Merge": 10}


def test_validation_says_how_far_it_is_and_what_it_waits_for(reader: Client, staff: Client) -> None:
    block = new_block(units=2, done=2, status=BlockStatus.ARCHIVED, no_tape="test", sealed_at=timezone.now())
    request = block.workflow.request
    assert "part-validation" not in reader.get(f"/requests/{request.request_name}/").content.decode()
    row = BlockValidation.objects.create(block=block, asked_at=timezone.now() - timedelta(hours=3))
    where = {"rse": "T1_US_FNAL_Disk", "site": "T1_US_FNAL", "next_try_at": row.asked_at}
    StorageCheck.objects.create(validation=row, generation=1, files=2, problem="no such volume", **where)
    said = page(staff, request, "part-validation")
    assert "0 of 1 block, 0 of 2 files" in said and "Asked for 3 h" in said
    assert "Waits for the storage of T1_US_FNAL to be compared with 2 files: no such volume." in said
    evidence = staff.get(f"/admin/outputs_app/processingblock/{block.pk}/change/").content.decode()
    for kind in ("blockvalidation", "storagecheck"):
        (link,) = {each for each in links(evidence) if kind in each and "?" in each}
        assert block.dbs_block_name in staff.get(link).content.decode() or "T1_US_FNAL_Disk" in staff.get(link).content.decode()
    BlockValidation.objects.update(validated_at=timezone.now())
    assert "1 of 1 block, 2 of 2 files" in page(reader, request, "part-validation")


def test_differences_from_dbs_and_rucio_are_listed_with_what_can_be_done(reader: Client, staff: Client) -> None:
    block = new_block()
    request = block.workflow.request
    assert "part-drift" not in reader.get(f"/requests/{request.request_name}/").content.decode()
    comparison = Comparison.objects.create(
        dataset=block.dataset, ended_at=request.created_at, result={"files": 1200, "blocks": 3}
    )
    assert "as they should be" in page(reader, request, "part-drift")
    row = drift_row(block)
    said = page(reader, request, "part-drift")
    assert "1 difference open" in said and "1,200 files in 3 blocks" in said
    assert row.name in said and "Repair" not in said
    Comparison.objects.filter(pk=comparison.pk).update(begun_at=request.created_at, last_error="rucio is silent")
    said = page(staff, request, "part-drift")
    assert "is being compared, 1,200 files so far" in said and "rucio is silent" in said
    for _ in range(MOST_DRIFT):
        drift_row(block)
    assert f"The oldest {MOST_DRIFT} are shown" in page(staff, request, "part-drift")


def test_units_are_drawn_as_rows_and_dagman_have_them(reader: Client, built: Scene) -> None:
    html = reader.get(f"/requests/{built.active.request_name}/").content.decode()
    assert "197 of 320" in text(html, "part-progress")
    counts = {
        look: html.count(f'class="unit unit-{look}" title') for look in ("done", "running", "failing", "waiting", "unaccounted")
    }
    assert counts == {"done": 197, "running": 10, "failing": 4, "waiting": 109, "unaccounted": 0}
    assert "mg_000197 and 3 more failed in this DAG: Node failed with return code 1" in text(html, "part-progress")


def test_of_an_ended_dag_nothing_is_drawn_as_running(reader: Client, built: Scene) -> None:
    DAG.objects.filter(workflow__request=built.active).update(status=DAGStatus.STOPPED)
    html = reader.get(f"/requests/{built.active.request_name}/").content.decode()
    assert 'class="unit unit-running" title' not in html
    assert html.count('class="unit unit-failing" title') == 4


def test_units_that_were_removed_with_their_dag_have_not_failed(reader: Client, built: Scene) -> None:
    dag = DAG.objects.get(workflow__request=built.active)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.STOPPED)
    path = Path(dag.submit_dir) / "workflow.dag.status"
    path.write_text(path.read_text().replace("Node failed with return code 1", "Was STATUS_SUBMITTED"))
    html = reader.get(f"/requests/{built.active.request_name}/").content.decode()
    assert html.count('class="unit unit-failing" title') == 0 and "failed in this DAG" not in html
    assert html.count('class="unit unit-waiting" title') == 123
    assert "was removed from the queue, and waits for the DAG&#x27;s next submission" in html


def test_without_dagmans_files_the_page_says_so_and_goes_on(reader: Client, built: Scene) -> None:
    (Path(DAG.objects.get(workflow__request=built.active).submit_dir) / "workflow.dag.status").unlink()
    said = page(reader, built.active, "part-progress")
    assert "what runs is not known: status file not written yet" in said
    assert "197 of 320" in said


def test_sites_and_states_are_counted(reader: Client, built: Scene) -> None:
    said = page(reader, built.active, "part-progress")
    assert "T1_US_FNAL 66 0 0" in said
    assert "T2_CH_CERN 66 0 0" in said


def test_an_unaccounted_unit_is_told_with_its_problem(reader: Client, built: Scene) -> None:
    said = page(reader, built.unaccounted, "part-progress")
    assert "mg_000009 done, unaccounted: merge_output.json is missing" in said
    assert "9 of 24 1 unaccounted" in said


def test_more_units_than_are_drawn_are_counted() -> None:
    dag = dag_row(workflow_row(), total_work_units=MOST_UNITS + 7)
    WorkUnit.objects.bulk_create(
        WorkUnit(workflow=dag.workflow, round=dag.round, dag=dag, index=i, name=f"mg_{i:06d}", jobs=1)
        for i in range(MOST_UNITS + 7)
    )
    work = request_page(dag.workflow.request).work
    assert work is not None
    assert (len(work.cells), work.cells_left_out) == (MOST_UNITS, 7)


def test_the_ledger_adds_up_on_the_page(reader: Client, built: Scene) -> None:
    said = page(reader, built.active, "part-ledger")
    assert "done 315,200" in said
    assert "planned or running 196,800" in said
    assert "asked for 512,000" in said


def test_a_ledger_that_does_not_hold_is_told_loudly(reader: Client, built: Scene) -> None:
    workflow = built.active.workflow
    workflow.next_first_event = 2
    workflow.save()
    assert "It does not add up: 512000 events are claimed, but only 1 event numbers were taken" in page(
        reader, built.active, "part-ledger"
    )


def test_effects_show_what_is_wrong_first_and_when_the_next_attempt_is(operator: Client, built: Scene) -> None:
    html = operator.get(f"/requests/{built.refused.request_name}/").content.decode()
    said = text(html, "part-effects")
    assert said.index("Refused") < said.index("Pending")
    assert "it is registered, and not as it should be: it lacks 1 files" in said
    assert re.search(r"in 2\d min", said)
    refused = Effect.objects.get(request=built.refused, state=EffectState.REFUSED)
    assert f"/admin/outputs_app/effect/verb/retry/?id={refused.pk}" in links(html, "part-effects")


def test_blocks_and_the_current_dag_are_shown(reader: Client, built: Scene) -> None:
    html = reader.get(f"/requests/{built.active.request_name}/").content.decode()
    assert "160 of 160" in text(html, "part-blocks")
    said = text(html, "part-dag")
    assert "Current DAG Running" in said
    assert "schedd1@wms2.example" in said
    assert "Of 320 nodes total:" in said
    assert "197 done, 10 running" in said
    assert "60 running, 20 idle, 0 held" in said
    assert "Jobs at sites, ended ones of all rounds T1_US_FNAL: 20 idle, 60 running, 0 held," in said


def test_all_dags_of_a_rescued_request_are_listed(reader: Client, built: Scene) -> None:
    said = page(reader, built.completed, "part-dag")
    assert "Last DAG Completed" in said
    assert "Rescue after failures" in said
    assert "27 of 30" in said


def test_history_has_actor_reason_and_how_long(reader: Client, built: Scene) -> None:
    said = page(reader, built.held, "part-history")
    assert said.index("Held") < said.index("Partial") < said.index("DAG ended") < said.index("Active")
    assert "by lifecycle · for 5 s the DAG ended with work units not done" in said
    assert "Round 0 submitted: 120 work units" in said and "Import" in said and "by pdmvserv" in said


def test_buttons_lead_to_the_admins_confirmation_for_operators_only(
    operator: Client, staff: Client, reader: Client, built: Scene
) -> None:
    path = f"/requests/{built.held.request_name}/"
    actions = [link for link in links(operator.get(path).content.decode(), "part-head") if "/verb/" in link]
    offered = ("release", "note", "abort")  # what is held calls for; then the others by theme
    offered += ("sites", "priority", "pin", "retry-time", "pools", "throttle", "error-limits")
    offered += ("group", "derive", "restart", "watch", "complete", "fail", "clean")
    back = urlencode({"back": path})
    assert actions == [f"/admin/requests_app/request/verb/{action}/?id={built.held.pk}&{back}" for action in offered]
    watch, unwatch = (f"/admin/requests_app/request/verb/{action}/?id={built.held.pk}&{back}" for action in ("watch", "unwatch"))
    for client, ways in ((staff, [watch]), (reader, [])):
        assert [link for link in links(client.get(path).content.decode()) if "/verb/" in link] == ways
    RequestWatch.objects.create(request=built.held, user=User.objects.get(username="stan"), created_at=timezone.now())
    assert [link for link in links(staff.get(path).content.decode()) if "/verb/" in link] == [unwatch]
    assert watch in links(operator.get(path).content.decode()), "who watches is of each alone"


def test_readers_watch_and_unwatch_from_the_page_without_the_admin(reader: Client, staff: Client, built: Scene) -> None:
    path = f"/requests/{built.held.request_name}/"
    assert ">Watch</button>" in reader.get(path).content.decode()
    assert ">Watch</button>" not in staff.get(path).content.decode(), "they have it among the operations"
    assert "no mail address" in reader.post(f"{path}watch/", follow=True).content.decode()
    User.objects.filter(username="rita").update(email="rita@example.org")
    assert ">Stop watching</button>" in reader.post(f"{path}watch/", follow=True).content.decode()
    assert RequestWatch.objects.get().user == User.objects.get(username="rita")
    assert ">Watch</button>" in reader.post(f"{path}watch/", {"stop": "1"}, follow=True).content.decode()
    assert not RequestWatch.objects.exists()


def test_after_an_operation_one_stands_where_one_stood_with_what_was_done_and_the_way_back(
    operator: Client, built: Scene
) -> None:
    path = f"/requests/{built.queued.request_name}/"
    here = urlencode({"back": path})

    def act(name: str, **given: Any) -> str:
        row = Request.objects.get(pk=built.queued.pk)
        seen = decision_basis(next(a for a in buttons_of(Request) if a.name == name), row)[0]
        posted = {"id": row.pk, "seen": seen, "back": path, "reason": "for Moriond", **given}
        answer = operator.post(f"/admin/requests_app/request/verb/{name}/", posted, follow=True)
        assert answer.redirect_chain == [(path, 302)], answer.content[:2000]
        return answer.content.decode()

    held = act("hold")
    assert "Hold: " in text(held) and "It is Held now." in text(held)
    release = f"/admin/requests_app/request/verb/release/?id={built.queued.pk}&{here}"
    assert release in links(held) and "Take it back: Release" in held
    assert "Take it back: Hold" in act("release")
    changed = act("priority", priority=200_000)
    (back,) = [link for link in links(changed) if "to.priority" in link]
    form = operator.get(back).content.decode()
    assert f'value="{built.queued.priority}"' in form and "Set back as it was" in changed
    act("priority", priority=0)
    (back,) = [link for link in links(act("priority", priority=1)) if "to.priority" in link]
    assert back.endswith("to.priority=0"), "0 is a former value, too"


def test_what_cannot_be_undone_offers_no_way_back_and_is_red(operator: Client, built: Scene) -> None:
    path = f"/requests/{built.new.request_name}/"
    assert re.search(r'class="button dangerous" href="[^"]*/verb/abort/', operator.get(path).content.decode())
    posted = {"id": built.new.pk, "seen": built.new.status, "back": path, "reason": "not wanted"}
    done = operator.post("/admin/requests_app/request/verb/abort/", posted, follow=True).content.decode()
    assert "It is Aborted now." in text(done) and "way-back" not in done


def test_a_long_form_is_short_and_folds_the_rest_by_theme(operator: Client, built: Scene) -> None:
    address = f"/admin/requests_app/request/verb/release/?id={built.held.pk}"
    html = operator.get(address).content.decode()
    (before, *folded) = html.split("<details")
    boxes = re.findall(r'name="(reason|mode|memory_mb|[a-z_]+)"', before[before.index("<fieldset") :])
    assert boxes == ["reason", "mode", "memory_mb"] and 'type="submit"' in before
    themes = [re.search(r"<summary>(.*?) <span", each) for each in folded]
    names = [found[1] for found in themes if found]
    assert names == [
        "Sites and pools", "Input files", "Retries and how much may fail", "Sizes of jobs and rounds", "How much runs at once",
    ]  # fmt: skip
    assert " open" not in "".join(each[:20] for each in folded)
    posted = {"id": built.held.pk, "seen": built.held.status, "reason": "x", "site_bans": "T2_XX_Nowhere", "retry_merge": "1000"}
    wrong = operator.post("/admin/requests_app/request/verb/release/", posted)
    assert wrong.status_code == 400 and "Ensure this value is less than or equal to 20." in wrong.content.decode()
    assert 'class="folded" open' in wrong.content.decode()
    refused = operator.post("/admin/requests_app/request/verb/release/", posted | {"retry_merge": "2"}).content.decode()
    assert refused.count("T2_XX_Nowhere is not a site of CRIC") == 2  # beside the row, and beside the box


def test_an_operator_who_is_not_staff_has_the_same_ways_into_the_admin(operator: Client, built: Scene) -> None:
    from django.contrib.auth.models import User

    path = f"/requests/{built.held.request_name}/"
    as_staff = [link for link in links(operator.get(path).content.decode()) if "/admin/" in link]
    User.objects.update(is_staff=False)
    assert [link for link in links(operator.get(path).content.decode()) if "/admin/" in link] == as_staff != []


def test_versions_link_to_each_other(reader: Client) -> None:
    old = request_row(S.FAILED)
    new = request_row(S.QUEUED, previous_version_request=old)
    assert f"/requests/{new.request_name}/" in links(reader.get(f"/requests/{old.request_name}/").content.decode())
    assert f"/requests/{old.request_name}/" in links(reader.get(f"/requests/{new.request_name}/").content.decode())


@pytest.mark.parametrize("units", [2, 90])
def test_it_costs_the_same_for_any_size(reader: Client, units: int, django_assert_num_queries: Any) -> None:
    request = request_row(S.ACTIVE)
    dag = dag_row(workflow_row(request), total_work_units=units)
    for index in range(units):
        unit_row(dag, index)
        Effect.objects.create(request=request, kind=EffectKind.DBS_BLOCK, key=f"{request.pk}{index}", state=EffectState.REFUSED)
    reader.get(f"/requests/{request.request_name}/")  # counts its account
    with django_assert_num_queries(PAGE_QUERIES) as captured:
        reader.get(f"/requests/{request.request_name}/")
    for query in captured.captured_queries:
        assert '"psets"' not in query["sql"]


def test_with_an_operators_buttons_it_takes_at_most_eight_statements(operator: Client) -> None:
    """The live DAG is that which the page has read."""
    request = request_row(S.ACTIVE)
    dag = dag_row(workflow_row(request))
    unit_row(dag)
    for path, most in ((f"/requests/{request.request_name}/", 7), (f"/dags/{dag.pk}/", 8)):
        asked = statements_of(operator, path)
        assert len(asked) <= most, "\n".join(each[:150] for each in asked)


def test_texts_from_outside_are_shown_as_text(reader: Client) -> None:
    request = request_row(S.ACTIVE, warnings=["<script>alert(1)</script>"], last_error="<i>x</i>", waiting_for="<b>y</b>")
    dag = dag_row(workflow_row(request), submit_error="<u>z</u>")
    unit_row(dag, state=WorkUnitState.DONE_UNACCOUNTED, problem='"><img src=x>')
    html = reader.get(f"/requests/{request.request_name}/").content.decode()
    for raw in ("<script>alert", "<i>x", "<b>y", "<u>z", "<img src=x"):
        assert raw not in html


def test_a_request_names_its_group_and_what_it_depends_on_and_the_group_has_a_page(reader: Client, operator: Client) -> None:
    parent, child = request_row(S.COMPLETED), request_row(S.VALIDATED_OUTPUTS, waiting_for="the others of its group sample: x")
    other = request_row(S.ACTIVE)
    group = RequestGroup.objects.create(name="sample", created_by="olga", note="for Moriond")
    Request.objects.filter(pk__in=[child.pk, other.pk]).update(in_group=group)
    child.depends_on.add(parent)
    shown = reader.get(f"/requests/{child}/").content.decode()
    assert {"/groups/sample/", f"/requests/{parent}/"} <= set(links(shown, "part-head"))
    assert f"/requests/{child}/" in links(reader.get(f"/requests/{parent}/").content.decode(), "part-head")
    seen = text(reader.get("/groups/sample/").content.decode())
    for reported in ("Group sample", "active", f"Waits for: {child}; {other}", "for Moriond", "olga", f"missing: {other}"):
        assert reported in seen, seen
    assert [link for link in links(operator.get("/groups/sample/").content.decode()) if "/verb/dissolve/" in link]
    assert reader.get("/groups/nothing/").status_code == 404
