"""What reaches which process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from deploy.stack import environment
from deploy.stack.identity import load

SETTINGS = {"PATH": "/stack/bin", "WMS2_SECRET_KEY": 'it\'s $HOME `id` "x"', "WMS2_DATABASE_URL": "postgresql://a@/b?host=/c"}


def written(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return environment.write_env_file(directory, {**SETTINGS, "WMS2_STATE_DIR": str(directory)})


def test_a_shell_that_sources_the_env_file_gets_the_very_values(tmp_path: Path) -> None:
    script = f'set -a; . "{written(tmp_path)}"; printf "%s|%s" "$WMS2_SECRET_KEY" "$PATH"'
    result = subprocess.run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert result.stdout == f"{SETTINGS['WMS2_SECRET_KEY']}|/stack/bin:/usr/bin:/bin"


def test_the_env_file_is_for_its_owner_only(tmp_path: Path) -> None:
    assert written(tmp_path).stat().st_mode & 0o777 == 0o600


def test_root_s_shell_may_ask_the_pool_where_nobody_is_called_condor(tmp_path: Path) -> None:
    reported = environment.read_env_file(written(tmp_path))
    assert reported["CONDOR_IDS"] == f"{os.getuid()}.{os.getgid()}", "HTCondor's commands end at once for root without it"


def test_a_sourced_env_file_is_not_taken_for_the_users_own_choice_of_servers(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    sourced = environment.read_env_file(written(demo)) | {"WMS2_LOG_LEVEL": "DEBUG", "PATH": "/usr/bin"}
    restored = environment.without_sourced(sourced)
    assert restored == {"WMS2_STATE_DIR": str(tmp_path), "WMS2_LOG_LEVEL": "DEBUG", "PATH": "/usr/bin"}


def test_what_the_user_set_after_sourcing_stays(tmp_path: Path) -> None:
    sourced = environment.read_env_file(written(tmp_path / "demo")) | {"WMS2_DATABASE_URL": "postgresql://mine/db"}
    assert environment.without_sourced(sourced)["WMS2_DATABASE_URL"] == "postgresql://mine/db"


def test_services_never_reach_loopback_through_a_proxy() -> None:
    caller = {"http_proxy": "http://proxy:3128", "no_proxy": "example.org"}
    base = environment.base(caller, "/bin")
    assert base["http_proxy"] == "http://proxy:3128"
    assert base["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert base["NO_PROXY"] == "127.0.0.1,localhost"


def test_settings_of_a_persons_python_and_condor_do_not_reach_services() -> None:
    personal = {"PYTHONPATH": "/x", "VIRTUAL_ENV": "/v", "_CONDOR_SCHEDD_HOST": "elsewhere", "CONDOR_CONFIG": "/etc/condor"}
    base = environment.base({**personal, "HOME": "/h"}, "/bin")
    assert base["HOME"] == "/h"
    assert not set(personal) & set(base)


def test_a_knob_is_passed_on_and_a_setting_of_the_stack_is_not_overruled() -> None:
    chosen = {"WMS2_TEAM": "t", "WMS2_CYCLE_SECONDS": "9"}
    caller = chosen | {"WMS2_LIMITS": '{"retry_merge": 1}', "WMS2_INSTANCE": "mine", "WMS2_TOOLS_DIR": "/t"}
    of_stack = '{"retry_merge": 5, "cooloff_base_seconds": 7}'
    settings = {"WMS2_INSTANCE": "demo-1", "WMS2_CYCLE_SECONDS": "5", "WMS2_LIMITS": of_stack}
    limits = {"WMS2_LIMITS": '{"retry_merge": 1, "cooloff_base_seconds": 7}'}
    assert environment.chosen_settings(caller, settings) == chosen | limits


def test_an_identity_is_made_once_and_kept_private(tmp_path: Path) -> None:
    first = load("demo", tmp_path)
    assert load("demo", tmp_path) == first
    assert first.instance.startswith("demo-")
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600
