"""The tables of ``docs/design/model.md`` are the code's: edges of both statuses, constraints by name."""

from __future__ import annotations

import re

import pytest
from django.apps import apps

from dags_app import states as dag_states
from deploy.demo import rows as rows_of
from deploy.stack import paths
from requests_app import states as request_states
from requests_app.models import RequestStatus

MODEL = (paths.checkout() / "docs/design/model.md").read_text()


def section(title: str) -> str:
    return MODEL.partition(f"\n## {title}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def edges(title: str) -> dict[str, set[str]]:
    rows = re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", section(title), re.M)
    return {start: set(ends.split(", ")) for start, ends in rows if start != "from"}


def test_the_edges_of_requests_are_those_of_the_table():
    reported = {start: {*ends, "cleaning"} - {start} for start, ends in edges("Request statuses").items()}
    reported["active"] -= {"cleaning"}
    reported |= {"cleaning": {"cleaned"}}
    for end in ("failed", "aborted"):
        reported[end] = {"cleaning"}
    assert reported == {str(start): {str(end) for end in ends} for start, ends in request_states.TRANSITIONS.items() if ends}
    assert not request_states.TRANSITIONS[RequestStatus.CLEANED]


def test_the_edges_of_dags_are_those_of_the_table():
    assert edges("DAG statuses") == {
        str(start): {str(end) for end in ends} for start, ends in dag_states.TRANSITIONS.items() if ends
    }


@pytest.mark.django_db
def test_rows_and_constraints_that_are_named_exist():
    rows = section("Rows")
    models = {model.__name__ for model in apps.get_models()}
    named = [name for cell in re.findall(r"^\| ([A-Z][\w, ]+) \|", rows, re.M) for name in cell.split(", ")]
    assert len(named) > 15
    assert [name for name in named if name not in models] == []
    constraints = rows_of.constraints()
    leant_on = re.findall(r"`(\w+)`", rows.partition("leans on:")[2])
    assert len(leant_on) > 8
    assert [name for name in leant_on if name not in constraints] == []


@pytest.mark.parametrize("title", ["Request statuses", "DAG statuses", "Rows"])
def test_the_sections_are_there(title):
    assert section(title)
