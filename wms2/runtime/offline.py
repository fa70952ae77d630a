"""Commands that work offline: from files alone, without a setting, a database or a service. Owns which, and what stands in.

Django wants settings before it runs any command. What stands in for them here leads nowhere, so a command that used one after
all would fail; and it stands in for these commands only, never for one that could change anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_NOWHERE = "https://nowhere.invalid"

#: Values for variables that are not set, in these commands.
STAND_INS: Mapping[str, str] = {
    "WMS2_INSTANCE": "offline",
    "WMS2_ENVIRONMENT": "test",
    "WMS2_SECRET_KEY": "offline nothing is signed",
    "WMS2_DATABASE_URL": "postgresql://unused@/none?host=/nonexistent",
    "WMS2_BROKER_URL": "redis://nowhere.invalid:6379/0",
    "WMS2_STATE_DIR": "/nonexistent",
    "WMS2_SUBMIT_ROOT": "/nonexistent",
    "WMS2_REQMGR2_URL": f"{_NOWHERE}/reqmgr2/data",
    "WMS2_DBS_READER_URL": _NOWHERE,
    "WMS2_DBS_WRITER_URL": _NOWHERE,
    "WMS2_CRIC_URL": _NOWHERE,
    "WMS2_RUCIO_HOME": "/nonexistent",
    "WMS2_RUCIO_ACCOUNT": "unused",
    "WMS2_SCHEDD_NAME": "nowhere",
    "WMS2_COLLECTOR": "nowhere.invalid",
    "WMS2_LOG_LEVEL": "WARNING",
}

_NEEDS: Mapping[str, frozenset[str]] = {
    "plan_request": frozenset(),
    "classify_failure": frozenset({"--shipped"}),
    "import_request": frozenset({"--check", "--offline"}),
}


def is_offline(arguments: Sequence[str]) -> bool:
    """Whether ``manage.py``'s arguments ask for such a command."""
    return len(arguments) > 1 and arguments[1] in _NEEDS and _NEEDS[arguments[1]] <= set(arguments)
