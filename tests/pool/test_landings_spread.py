"""Landings on a pool whose negotiator fills one slot after the other, as HTCondor does where nobody tells it otherwise."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dags_app.payload.contract.layout import CLUSTER_LOG, SITE_ATTRIBUTE, SPREAD_FILE
from dags_app.payload.post import election
from dags_app.planning.submitfiles import landing_submit
from dags_app.planning.writer import replace_file
from deploy.htcondor.sites import SITES
from tests.pool import condor
from tests.support.faults import fault
from tests.support.planning import dag_spec
from tests.support.second_pool import SecondPool
from tests.support.waiting import until

pytestmark = [pytest.mark.pool, pytest.mark.slow]
#: HTCondor's own default, in place of the one that the pools of the tests have.
DEFAULT = "(10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) - (100000 * Cpus) - Memory"
NAMES = sorted(site.cms_name for site in SITES)


@pytest.fixture
def pool(second_pool: SecondPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondPool]:
    monkeypatch.setenv("CONDOR_CONFIG", str(second_pool.config))
    second_pool.stop()
    second_pool.environment["_CONDOR_NEGOTIATOR_PRE_JOB_RANK"] = DEFAULT
    second_pool.start()
    yield second_pool
    second_pool.stop()
    del second_pool.environment["_CONDOR_NEGOTIATOR_PRE_JOB_RANK"]
    second_pool.start()


def landed(place: Path, units: int, slots: dict[str, int]) -> Counter[str]:
    """Where so many landings ran that were submitted together."""
    dag = place / str(uuid.uuid4())
    dag.mkdir()
    (dag / "landing.sub").write_text(landing_submit(dag_spec()))
    (dag / "avoid.inc").write_text("DAG_AVOID =\n")
    replace_file(dag / SPREAD_FILE, json.dumps(slots))
    for number in range(units):
        unit = dag / f"mg_{number:06d}"
        unit.mkdir()
        (unit / "group.dag").write_text(f'VARS landing sites="{",".join(NAMES)}"\n')
        assert election.reelect(dag, unit.name, 0) == 0
    condor.give(dag)
    units_of = sorted(unit.name for unit in dag.glob("mg_*"))
    job = '(cd $u && condor_submit -terse ../landing.sub wms2_unit=$u wms2_place=0 "sites=$2")'
    submit = f"for u in $1; do {job} || exit 1; done > submitted"
    for first in range(0, units, 25):
        some = " ".join(units_of[first : first + 25])
        condor.run("sh", "-c", submit, "-", some, ",".join(NAMES), directory=dag)
    logs = [dag / name / CLUSTER_LOG for name in units_of]
    until(lambda: all("return value 0" in log.read_text() for log in logs), "all landings ran", seconds=300)
    return Counter(re.findall(rf'{SITE_ATTRIBUTE} = "?(\w+)"?', log.read_text())[-1] for log in logs)


@pytest.mark.deep(
    "tests/dags_app/payload/test_election.py::test_units_look_first_at_sites_by_their_slots_where_the_pool_does_not_spread_them"
)
@fault(
    "a pool without a rank expression",
    done="200 landings at once where the negotiator fills one slot after the other",
    spec="DD-3",
    afterwards="each of four equal sites has a quarter of them; without WMS2's spreading one had most",
)
def test_no_site_of_four_equal_ones_gets_most_landings(pool: SecondPool) -> None:
    place = pool.directory / "test-dags"
    place.mkdir(exist_ok=True)
    condor.give(place)
    try:
        herd = landed(place, 24, {})
        spread = landed(place, int(os.environ.get("WMS2_TEST_LANDINGS", "200")), dict.fromkeys(NAMES, 8))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("RESULT", dict(herd), dict(spread))
    assert max(spread.values()) <= 0.3 * spread.total(), (spread, herd)  # the herd is as the negotiator has time for it
