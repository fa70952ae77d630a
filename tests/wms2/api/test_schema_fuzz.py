"""Schemathesis over the schema against a live server: whatever the schema allows or forbids, the answer is never a 500 and always
of the form that the schema tells. Seeded; few examples. A long run: docs/api.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from requests import Session
from rest_framework.authtoken.models import Token
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from dags_app.models import WorkUnitState
from outputs_app.models import EffectState
from requests_app.models import RequestStatus
from sites_app.models import Site
from tests.support.adapters import adapters_forget
from tests.support.rows import dag_row, new_block, new_effect, request_row, unit_row, workflow_row

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
#: Of each operation; many are for the long run.
FEW, MANY = 2, 8
CHECKS = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]


@pytest.fixture
def headers(django_user_model: Any) -> dict[str, str]:
    """An operator's."""
    user = django_user_model.objects.create_superuser("fuzz")
    return {"Authorization": f"Token {Token.objects.create(user=user).key}"}


@pytest.fixture(autouse=True)
def _quick_services() -> Any:
    """Nobody answers at the lab's addresses; each breaker starts closed."""
    adapters_forget()
    yield
    adapters_forget()


def things() -> dict[str, list[Any]]:
    """Something new of everything, by the word in the path that leads to it."""
    requests = [request_row(status) for status in RequestStatus]
    begun = [request for request in requests if request.status not in (RequestStatus.NEW, RequestStatus.SUBMITTED)]
    workflows = [workflow_row(request) for request in begun]
    dags = [dag_row(workflow) for workflow in workflows]
    for dag in dags:
        unit_row(dag, state=WorkUnitState.PLANNED)
    Site.objects.get_or_create(name="T1_US_FNAL")
    return {
        "requests": [request.request_name for request in requests],
        "workflows": [str(workflow.pk) for workflow in workflows],
        "dags": [str(dag.pk) for dag in dags],
        "blocks": [str(new_block().pk)],
        "effects": [new_effect(state).pk for state in EffectState],
        "sites": ["T1_US_FNAL"],
    }


@pytest.fixture(scope="module")
def operations() -> list[Any]:
    """Of the schema, which takes seconds to make."""
    schema = schemathesis.openapi.from_dict(SchemaGenerator().get_schema(request=None, public=True))
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.dear("the only test that every operation answers as its schema says")
def test_nothing_that_a_client_sends_is_a_500_and_every_answer_is_as_the_schema_says(
    operations: list[Any], live_server: Any, headers: dict[str, str], subtests: pytest.Subtests
) -> None:
    fuzz_each(operations, FEW, live_server.url, headers, subtests)


@pytest.mark.deep(
    "tests/wms2/api/test_schema_fuzz.py::test_nothing_that_a_client_sends_is_a_500_and_every_answer_is_as_the_schema_says"
)
def test_nor_with_many_examples(
    operations: list[Any], live_server: Any, headers: dict[str, str], subtests: pytest.Subtests
) -> None:
    fuzz_each(operations, MANY, live_server.url, headers, subtests)


def fuzz_each(operations: list[Any], examples: int, url: str, headers: dict[str, str], subtests: pytest.Subtests) -> None:
    assert len(operations) > 100
    known, changed = things(), True
    with Session() as session:
        session.headers.clear()
        for operation in operations:
            with subtests.test(operation.label):
                changed = fuzz_one(operation, examples, known, url, headers, session)
            if changed:
                known = things()


def fuzz_one(
    operation: Any, examples: int, known: dict[str, list[Any]], url: str, headers: dict[str, str], session: Session
) -> bool:
    """Whether something that is known may have been changed. What takes nothing but a row's name is asked once, for one that is
    there."""
    resource_type = operation.path.removeprefix("/api/v1/").split("/")[0]
    cases, raw = operation.as_strategy(), operation.definition.raw
    takes_nothing = (
        examples == FEW and not raw.get("requestBody") and not any(one["in"] == "query" for one in raw.get("parameters", ()))
    )
    if raw.get("parameters") or raw.get("requestBody"):
        cases |= operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    done = set[bool]()

    @settings(
        max_examples=1 if takes_nothing else examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, there=st.just(True) if takes_nothing else st.booleans(), data=st.data())
    def fuzz(case: Any, there: bool, data: st.DataObject) -> None:
        if there and case.path_parameters and resource_type in known:
            first = operation.path.partition("{")[2].partition("}")[0]
            case.path_parameters = {**case.path_parameters, first: data.draw(st.sampled_from(known[resource_type]))}
        response = case.call(base_url=url, headers=headers, session=session)
        session.cookies.clear()
        done.add(response.status_code < 300 and operation.method.upper() != "GET")
        if response.status_code != 503:  # a service that does not answer is no fault of ours
            case.validate_response(response, checks=[not_a_server_error])
        case.validate_response(response, checks=CHECKS)

    fuzz()
    return True in done
