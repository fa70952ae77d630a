"""A DAG that was read for a page can be steered: its schedd is asked at its pool, whatever columns were read of it."""

from __future__ import annotations

import pytest

from dags_app.selectors import dags_shown
from requests_app.models import RequestStatus
from sites_app.schedds import adapter
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row

pytestmark = pytest.mark.django_db


def test_the_schedd_of_a_dag_that_is_shown_can_be_asked() -> None:
    schedd = schedd_row()
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), schedd=schedd)
    shown = dags_shown().get().schedd
    assert shown is not None
    assert (shown.name, shown.state, shown.pool.collector) == (schedd.name, schedd.state, schedd.pool.collector)
    adapter(shown)
    shown.refresh_from_db(fields=["state"])
