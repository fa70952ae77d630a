"""What a task's declaration says is what beat fires and what every sender routes by, in a process that has only set Django up."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from wms2.runtime import periodic

#: Task -> queue, entry of the schedule, seconds between two runs, whether it can wait: changed only on purpose.
TABLE = {
    "dags_app.tasks.tend_onboardings": ["celery", "onboardings", 60.0, False],
    "outputs_app.tasks.look_at_source_rules": ["effects", "source-rules", 3600.0, True],
    "outputs_app.tasks.reconcile": ["effects", "reconcile", 300.0, True],
    "outputs_app.tasks.remind_of_cases": ["effects", "cases", 600.0, True],
    "outputs_app.tasks.run_effects": ["effects", "effects", 10.0, False],
    "requests_app.tasks.archive_requests": ["effects", "archive", 3600.0, True],
    "requests_app.tasks.check_storage": ["effects", "storage", 60.0, False],
    "requests_app.tasks.evaluate_due": ["celery", None, None, False],
    "requests_app.tasks.evaluate_request": ["verbs", None, None, False],
    "requests_app.tasks.harvest": ["effects", "harvests", 60.0, False],
    "requests_app.tasks.look_at_rucio_account": ["effects", "rucio-account", 600.0, False],
    "requests_app.tasks.look_for_dark_files": ["effects", "dark-files", 3600.0, False],
    "requests_app.tasks.pack_dags": ["effects", "packs", 600.0, True],
    "requests_app.tasks.poll_reqmgr2": ["effects", "reqmgr2", 60.0, False],
    "requests_app.tasks.remove_leftovers": ["effects", "leftovers", 60.0, False],
    "requests_app.tasks.send_alerts": ["effects", "alerts", 10.0, False],
    "requests_app.tasks.run_lifecycle_cycle": ["ticks", "lifecycle", 2.0, False],
    "sites_app.tasks.refresh_slots": ["effects", "slots", 60.0, True],
    "sites_app.tasks.sync_site_statuses": ["effects", "site_statuses", 600.0, False],
    "sites_app.tasks.sync_sites": ["effects", "sites", 3600.0, True],
    "wms2.tasks.clear_sessions": ["effects", "sessions", 3600.0, True],
    "wms2.tasks.run_bulk": ["effects", "bulk", 10.0, False],
}
_SENDER = """
import json, django
django.setup()
from wms2.celery import app
from wms2.runtime.periodic import DECLARED
entries = {entry["task"]: (name, entry["schedule"], entry["options"]) for name, entry in app.conf.beat_schedule.items()}
assert all(seconds == options["expires"] for _, seconds, options in entries.values()), entries
print(json.dumps({
    name: [app.amqp.router.route({}, name)["queue"].name, *entries.get(name, (None, None))[:2], declared.can_wait]
    for name, declared in DECLARED.items()
}))
"""


def test_a_process_that_only_sends_knows_every_tasks_queue_and_beat_every_period() -> None:
    ours = {name: value for name, value in os.environ.items() if not name.endswith(("_CYCLE_SECONDS", "POLL_SECONDS"))}
    done = subprocess.run(
        [sys.executable, "-B", "-c", _SENDER], env=ours, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == TABLE


def test_a_declaration_that_is_half_of_one_or_a_second_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"two Celery tasks are declared as wms2\.tasks\.run_bulk"):
        periodic.task("wms2.tasks.run_bulk")
    with pytest.raises(ValueError, match=r"of\.a_test needs both beat= and every="):
        periodic.task("of.a_test", every=3.0)
