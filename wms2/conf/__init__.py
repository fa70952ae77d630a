"""Typed, frozen settings of WMS2. Each field is read once from ``WMS2_<FIELD>``.

Limits are what operators change at run time; here are their defaults. Units stand in the names. Wrong values are refused by
name; there is no fallback. The text below a field is its line in ``docs/configuration.md``, the comments are the headings there.
One module a theme.
Sources: spec 4.2, 4.4, 4.7, 5.2, 15; error-handling 8.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import get_origin

from pydantic import ValidationError

from wms2.conf.alerts import Alerts
from wms2.conf.identities import Identities
from wms2.conf.lifecycle import WEB_THREADS, Lifecycle
from wms2.conf.limits import GROUPS, Limits
from wms2.conf.outputs import DATABASE_IDLE_SECONDS, Outputs
from wms2.conf.planning import Planning
from wms2.conf.services import LINKED, JobCredential, Services
from wms2.errors import ConfigurationError

__all__ = ["DATABASE_IDLE_SECONDS", "GROUPS", "WEB_THREADS", "Conf", "JobCredential", "Limits", "conf", "from_environment"]


class Conf(Outputs, Planning, Lifecycle, Identities, Alerts, Services):
    """All settings. Required ones have no default."""

    @property
    def msoutput_places(self) -> bool:
        """Whether WMCore's MSOutput makes the rules on tape and disk; then WMS2 makes none."""
        return (self.output_placement or ("msoutput" if self.reqmgr2_follow else "wms2")) == "msoutput"


#: Settings of former releases that are constants now: set, they would do nothing, so they stop the start. Those that stand in
#: another variable name it.
_REMOVED = """
WMS2_TIMEOUT_SUBMITTED_SECONDS WMS2_TIMEOUT_PLANNING_SECONDS WMS2_TIMEOUT_DISPATCH_SECONDS WMS2_TIMEOUT_STOPPING_SECONDS
WMS2_TIMEOUT_RESUBMITTING_SECONDS WMS2_TIMEOUT_VALIDATING_SECONDS WMS2_TIMEOUT_VALIDATED_SECONDS
WMS2_TIMEOUT_REMOVING_SECONDS WMS2_TIMEOUT_CLEANING_SECONDS WMS2_SCHEDD_MAX_DUTY_CYCLE WMS2_SCHEDD_STALLED_SECONDS
WMS2_SYSTEMIC_WINDOW_SECONDS WMS2_OVERLOAD_EVALUATIONS_SECONDS WMS2_OVERLOAD_EFFECTS_SECONDS
WMS2_OVERLOAD_DATABASE_SECONDS WMS2_STRAY_LOOK_SECONDS WMS2_SUBMIT_ROOT_FREE_MB WMS2_BLOCK_MAX_EVENTS
WMS2_BLOCK_MAX_LUMIS WMS2_BLOCK_MAX_WAIT_SECONDS WMS2_FIRST_ROUND_UNITS WMS2_MIN_REQUEST_CPUS WMS2_SPLIT_BELOW
WMS2_MAX_JOBS_PER_WORK_UNIT WMS2_INPUT_LOCATIONS_SECONDS WMS2_INPUT_MISSING_ALERT_SECONDS WMS2_EXTEND_MAX_FAILURE_RATE
WMS2_EXTEND_MAX_QUEUED WMS2_DAG_MAX_PROCESSING WMS2_ALERT_FAILED_ATTEMPTS WMS2_JOB_NO_CPU_SECONDS WMS2_JOB_HELD_SECONDS
WMS2_JOB_MAX_STARTS WMS2_JOB_IDLE_SECONDS WMS2_CLEANER_ENDED_GRACE_DAYS
WMS2_SITE_JOB_TIMEOUT_SECONDS WMS2_SITE_JOB_RUN_SECONDS WMS2_HARVEST_MEMORY_MB WMS2_HARVEST_RUN_SECONDS
WMS2_HARVEST_MAX_JOBS WMS2_KEEP_ANSWERS_HOURS WMS2_KEPT_LOGS_PER_UNIT WMS2_KEPT_LOGS_PER_DAG WMS2_KEPT_LOGS_MB_PER_DAG
WMS2_KEPT_LOGS_OF_SUCCESSES WMS2_RULE_APPROVAL_CHECK_SECONDS WMS2_RECONCILE_DAYS WMS2_INTEGRITY_REMINDER_HOURS
WMS2_DATABASE_LOCK_SECONDS WMS2_DATABASE_IDLE_SECONDS WMS2_DATABASE_SILENT_SECONDS WMS2_WORKER_MISSING_SECONDS
WMS2_CREDENTIAL_ALERT_SECONDS WMS2_SIGN_IN_WINDOW_SECONDS WMS2_MAX_CLOCK_SKEW_SECONDS WMS2_PRIMARY_DS_TYPE
WMS2_PILEUP_MIN_FRACTION WMS2_PILEUP_CACHE_SECONDS WMS2_ALERT_DIGEST_HOUR WMS2_ALERT_REMINDER_HOURS WMS2_CLEANER_GRACE_DAYS
WMS2_DAG_LOG_SCAN_INTERVAL_SECONDS WMS2_DAG_STATUS_INTERVAL_SECONDS WMS2_JOB_CREDENTIAL_MARGIN_SECONDS
WMS2_JOB_CREDENTIAL_STOP_SECONDS WMS2_MAX_NODES_PER_DAG WMS2_MAX_VERSIONS WMS2_MAX_WALL_SECONDS WMS2_MAX_WORK_UNITS_PER_DAG
WMS2_PACK_DAGS_AFTER_DAYS WMS2_PHYSICS_GROUP WMS2_POLL_SECONDS WMS2_RUCIO_SCOPE WMS2_RULE_ACTIVITY
WMS2_SESSION_ABSOLUTE_SECONDS WMS2_SESSION_IDLE_SECONDS WMS2_SIGN_IN_FAILURES_PER_ADDRESS WMS2_SIGN_IN_FAILURES_PER_NAME
WMS2_TARGET_WALL_SECONDS WMS2_TOKEN_MAX_SECONDS WMS2_WAIT_FOR_FULL_UNITS WMS2_WEB_THREADS WMS2_X509_DN_HEADER
WMS2_X509_VERIFY_HEADER
"""
_ELSEWHERE = {f"WMS2_{name.upper()}": "WMS2_LIMITS" for name in Limits.model_fields} | {
    f"WMS2_LINK_{name.upper()}": "WMS2_LINKS" for name in LINKED
}


def _variable(place: tuple[int | str, ...]) -> str:
    """Which variable a problem is about; empty for one of several together, which names them itself."""
    return "".join(f"{part}: " for part in (f"WMS2_{str(place[0]).upper()}", *place[1:])) if place else ""


def _value(raw: str, form: object) -> object:
    """Lists are separated by commas, names with values are a JSON object; anything else is refused like any wrong value."""
    if form is tuple:
        return tuple(part.strip() for part in raw.split(","))
    if form in (dict, Limits):
        with suppress(ValueError):
            return json.loads(raw)
    return raw


def from_environment(environment: Mapping[str, str]) -> Conf:
    """Read the settings from ``WMS2_*`` variables. Raises ConfigurationError: naming each missing, wrong or removed variable."""
    given = {name for name, value in environment.items() if value}
    if moved := sorted(_ELSEWHERE.keys() & given):
        where = ", ".join(f"{name} in {_ELSEWHERE[name]}" for name in moved)
        raise ConfigurationError(f"these have another variable now, a JSON object of names and values: {where}")
    if removed := sorted(set(_REMOVED.split()) & given):
        raise ConfigurationError(f"these are constants of the code now; remove them from the environment: {', '.join(removed)}")
    values: dict[str, object] = {}
    for name, field in Conf.model_fields.items():
        if raw := environment.get(f"WMS2_{name.upper()}"):
            values[name] = _value(raw, get_origin(field.annotation) or field.annotation)
    try:
        return Conf.model_validate(values)
    except ValidationError as error:
        lines = [f"{_variable(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigurationError("WMS2 is not configured; set in the environment:\n  " + "\n  ".join(lines)) from error


@cache
def conf() -> Conf:
    """The settings of this process, read once from the process environment."""
    return from_environment(os.environ)
