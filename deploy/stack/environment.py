"""Which environment variables reach which process.

Owns: what of the caller's environment is passed on, the variables WMS2 reads its settings from (the contract between
``deploy/`` and ``wms2/settings``), and the ``env`` file a person can source.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from deploy.htcondor.pool import Pool
from deploy.rucio.server import SERVICE_ACCOUNT
from deploy.stack.identity import Identity, write_private
from deploy.stack.paths import ENV_FILE, KINDS, TEST_KINDS

# Passed on from the caller: how the network and pip are used, language, time zone, and every WMS2 setting.
PASSED_PREFIXES = ("WMS2_", "BENCH_", "PIP_", "SSL_CERT_")
PASSED = frozenset({
    "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "LANG", "LC_ALL", "TZ", "TERM", "CI", "NO_COLOR",
})  # fmt: skip
RUCIO_HOME = "rucio/client"
#: Defaults of limits, as a JSON object.
LIMITS = "WMS2_LIMITS"
#: Of the second pool, where there is one.
SECOND_CONFIG = "SECOND_CONDOR_CONFIG"
#: Stacks whose adaptive requests are small, and are to have several rounds all the same.
SMALL_ROUNDS = ("demo", "check")
#: The demo takes what its ReqMgr2 has for it, and tells it.
FOLLOWS = {
    "WMS2_TEAM": "wms2",
    "WMS2_OTHER_TEAMS": "1",
    "WMS2_REQMGR2_FOLLOW": "1",
    "WMS2_OUTPUT_PLACEMENT": "wms2",
    "WMS2_REQMGR2_REPORT": "1",
    "WMS2_REQMGR2_POLL_SECONDS": "2",
}
LOOPBACK = "127.0.0.1,localhost"


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the caller's environment that set-up and services may see."""
    return {k: v for k, v in environment.items() if k in PASSED or k.startswith(PASSED_PREFIXES)}


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of an ``env`` file."""
    words = shlex.split(path.read_text(), comments=True)
    return dict(word.split("=", 1) for word in words if "=" in word)


def without_sourced(environment: Mapping[str, str]) -> dict[str, str]:
    """Undo a sourced ``env`` file, so that one stack's services are not taken for a choice made for another stack."""
    state = Path(environment.get("WMS2_STATE_DIR", "") or "/nonexistent")
    if state.name not in KINDS or not (state / ENV_FILE).exists():
        return dict(environment)
    sourced = read_env_file(state / ENV_FILE)
    kept = {k: v for k, v in environment.items() if sourced.get(k) != v or k == "PATH"}
    return kept | {"WMS2_STATE_DIR": str(state.parent)}


#: No rate is limited.
UNLIMITED = dict.fromkeys(("rate_limit_submit", "rate_limit_read", "rate_limit_act", "rate_limit_streams"), 0)


def with_limits(environment: Mapping[str, str], **limits: object) -> dict[str, str]:
    """``WMS2_LIMITS`` of this environment, with these among them."""
    return {LIMITS: json.dumps(json.loads(environment.get(LIMITS) or "{}") | limits)}


def base(environment: Mapping[str, str], path: str, bytecode: Path | None = None) -> dict[str, str]:
    """What every service gets: no Python or condor settings of a person, loopback never through a proxy.

    ``bytecode`` is where Python keeps what it has compiled; None: beside the sources, where it may write there.
    """
    result = {k: v for k, v in passed_on(environment).items() if not k.startswith(("WMS2_", "PIP_"))}
    for name in ("no_proxy", "NO_PROXY"):
        result[name] = f"{result[name]},{LOOPBACK}" if result.get(name) else LOOPBACK
    result |= {"PATH": path, "LANG": result.get("LANG", "C.UTF-8"), "PYTHONUNBUFFERED": "1"}
    if bytecode is not None:
        result["PYTHONPYCACHEPREFIX"] = str(bytecode)
    return result | {name: environment[name] for name in ("HOME", "USER", "LOGNAME") if name in environment}


def contract(
    kind: str, directory: Path, identity: Identity, pool: Pool, *, database_url: str, broker_url: str, simulators_port: int
) -> dict[str, str]:
    """The settings of WMS2 for this stack; ``docs/configuration.md`` explains each."""
    simulators = f"http://127.0.0.1:{simulators_port}"
    return {
        "WMS2_STATE_DIR": str(directory),
        "WMS2_DATABASE_URL": database_url,
        "WMS2_BROKER_URL": broker_url,
        "WMS2_SECRET_KEY": identity.django_secret_key,
        "WMS2_INSTANCE": identity.instance,
        "WMS2_ENVIRONMENT": "test" if kind in TEST_KINDS else "demo",
        "WMS2_STORAGE_CHECKS_ENABLED": str(int(kind not in TEST_KINDS)),  # each waits for a job; tests of them turn it on
        # tests run many at a time, on a machine that is busy with them
        **({"WMS2_TROUBLE_LOAD_PER_CPU": "0"} if kind in TEST_KINDS else {}),
        "WMS2_DEBUG": "0",
        "WMS2_ALLOWED_HOSTS": LOOPBACK,
        "WMS2_STATIC_ROOT": str(directory / "static"),
        "WMS2_REQMGR2_URL": f"{simulators}/reqmgr2/data",
        "WMS2_CONFIGCACHE_URL": f"{simulators}/couchdb",
        "WMS2_DQM_UPLOAD_URL": f"{simulators}/dqm/dev",
        "WMS2_DBS_READER_URL": f"{simulators}/dbs/prod/global/DBSReader",
        "WMS2_DBS_WRITER_URL": f"{simulators}/dbs/prod/global/DBSWriter",
        "WMS2_CRIC_URL": simulators,
        "WMS2_RUCIO_HOME": str(directory / RUCIO_HOME),
        "WMS2_RUCIO_ACCOUNT": SERVICE_ACCOUNT,
        "CONDOR_CONFIG": str(pool.config_file),
        "WMS2_CONDOR_TOKEN_DIR": str(pool.client_token_directory),
        "WMS2_SCHEDD_NAME": pool.schedd_name,
        "WMS2_COLLECTOR": pool.collector,
        "WMS2_SUBMIT_ROOT": str(directory / "submit"),
        # a small pool on one machine: few DAGMans, look often, retry soon
        "WMS2_CYCLE_SECONDS": "5",
        "WMS2_SWEEP_SECONDS": "60",
        "WMS2_EFFECT_GATHER_SECONDS": "5",
        "WMS2_MAX_DAGMAN_SLOTS_PER_SCHEDD": "500",
        "WMS2_EFFECT_BACKOFF_SECONDS": "2,5,10,30,60",
        **with_limits(
            {},
            dag_max_merge_groups=10,
            cooloff_base_seconds=5,
            retry_after_failure_seconds=5,
            **(UNLIMITED if kind in TEST_KINDS else {}),
            **({"work_units_per_round": 1} if kind in SMALL_ROUNDS else {}),
        ),
        "DJANGO_SETTINGS_MODULE": "wms2.settings",
        **(FOLLOWS if kind in SMALL_ROUNDS else {}),
    }


def chosen_settings(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Further WMS2 settings the caller chose, which the contract does not set; limits beside its own."""
    ours = {"WMS2_CHROMIUM", "WMS2_HTCONDOR", "WMS2_TOOLS_DIR", "WMS2_STACK", "WMS2_STACK_POOLS"}
    chosen = {k: v for k, v in environment.items() if k.startswith("WMS2_") and k not in settings and k not in ours}
    cycle = environment.get("WMS2_CYCLE_SECONDS")
    limits = with_limits(settings, **json.loads(environment[LIMITS])) if environment.get(LIMITS) else {}
    return chosen | ({"WMS2_CYCLE_SECONDS": cycle} if cycle else {}) | limits


def write_env_file(directory: Path, settings: Mapping[str, str]) -> Path:
    """Write the settings so that ``set -a; . <file>`` gives a person the stack's environment.

    Root's shell, too: HTCondor's commands then ask whom the daemons run as, and look for a user ``condor`` if nothing says.
    """
    path = directory / ENV_FILE
    settings = {**settings, "CONDOR_IDS": f"{os.getuid()}.{os.getgid()}"}
    lines = ["# Settings of this stack, written at its start. Use: set -a; . <this file>; set +a"]
    lines += [f"{name}={shlex.quote(value)}" + (':"$PATH"' if name == "PATH" else "") for name, value in settings.items()]
    write_private(path, "\n".join(lines) + "\n")
    return path
