"""compose.yml, Procfile, Dockerfile and process fit together: processes exist, settings are known, no secret is here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.docs import configuration
from deploy.run import healthy
from tests.support.places import ROOT
from wms2.conf import Conf

DEPLOY = ROOT / "deploy/run"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if str(service["image"]).startswith("wms2:")}
PROCESS = (DEPLOY / "process").read_text()
PROCFILE = (DEPLOY / "Procfile").read_text().splitlines()
UNIT = DEPLOY / "systemd/wms2@.service"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
KINDS = {first or second for first, second in re.findall(r"^    (\w+)\) exec|^    (prepare)\)$", PROCESS, re.M)}
#: All that the page of settings names.
KNOWN = set(re.findall(r"^\| `([A-Z0-9_]+)`", configuration.TARGET.read_text(), re.M))
#: Variables of compose.yml alone: published ports, the image's tag, directories of the host.
FOR_COMPOSE = {
    "WMS2_VERSION", "WMS2_WEB_PORT", "WMS2_STREAM_PORT", "WMS2_FLOWER_PORT", "WMS2_PROMETHEUS_PORT", "WMS2_ALERTMANAGER_PORT",
    "WMS2_GRAFANA_PORT", "WMS2_CONDOR_DIRECTORY", "WMS2_RUCIO_DIRECTORY",
}  # fmt: skip


def test_every_process_is_one_that_deploy_process_knows() -> None:
    assert {"web", "stream", "worker", "verbs", "ticker", "beat", "flower", "lifecycle", "prepare"} <= KINDS
    for name, service in OURS.items():
        (kind,) = service["command"]
        assert kind in KINDS, name


def test_the_procfile_has_the_same_processes() -> None:
    lines = [line for line in (DEPLOY / "Procfile").read_text().splitlines() if line and not line.startswith("#")]
    reported = dict(line.split(": ", 1) for line in lines)
    assert reported == {
        kind: f"deploy/run/process {kind}" for kind in ("web", "stream", "worker", "verbs", "ticker", "beat", "flower")
    }


def test_what_is_needed_for_all_of_wms2_is_there() -> None:
    always = {n for n, s in SERVICES.items() if not s.get("profiles")}
    assert {"web", "stream", "worker", "verbs", "ticker", "beat", "flower", "postgres", "valkey"} <= always
    monitoring = {name for name, service in SERVICES.items() if service.get("profiles") == ["monitoring"]}
    assert monitoring == {"prometheus", "alertmanager", "grafana"}


def test_the_unit_starts_what_the_procfile_has_with_settings_that_wms2_knows() -> None:
    text = UNIT.read_text()
    named = re.findall(r"wms2@(\w+)", next(line for line in text.splitlines() if "enable --now" in line))
    assert set(named) == {line.partition(":")[0] for line in PROCFILE if line[:1].isalpha()} - {"flower"}
    assert set(re.findall(r"\b(WMS2_\w+)=", text)) <= KNOWN
    if shutil.which("systemd-analyze"):
        reported = subprocess.run(["systemd-analyze", "verify", UNIT], capture_output=True, text=True, check=False).stderr
        assert [line for line in reported.splitlines() if "wms2@" in line and "/opt/wms2" not in line] == []


def test_every_setting_is_one_that_wms2_knows() -> None:
    given = {name for service in OURS.values() for name in service["environment"]}
    given |= {line.partition("=")[0] for line in (DEPLOY / "wms2.env.example").read_text().splitlines() if line[:1].isalpha()}
    given |= set(re.findall(r"\b(WMS2_\w+)=", DOCKERFILE))
    assert given - KNOWN == set()
    asked = set(re.findall(r"\$\{(WMS2_\w+)", (DEPLOY / "compose.yml").read_text()))
    assert asked - KNOWN - FOR_COMPOSE == set()


def test_every_setting_that_is_required_is_given_or_asked_for() -> None:
    required = {f"WMS2_{name.upper()}" for name, field in Conf.model_fields.items() if field.is_required()}
    required |= {"WMS2_DATABASE_URL", "WMS2_BROKER_URL", "WMS2_SECRET_KEY", "WMS2_ENVIRONMENT"}
    in_example = set(re.findall(r"^(WMS2_\w+)=", (DEPLOY / "wms2.env.example").read_text(), re.M))
    in_image = set(re.findall(r"\b(WMS2_\w+)=", DOCKERFILE))
    for name, service in OURS.items():
        given = in_example | in_image | set(service["environment"]) | set(service["secrets"])
        assert required - given == set(), name


def ports() -> Iterator[tuple[str, str]]:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            yield name, port


@pytest.mark.parametrize(("name", "port"), list(ports()))
def test_ports_are_published_on_the_loopback_interface_only(name: str, port: str) -> None:
    assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "prepare"])
def test_every_service_that_stays_says_whether_it_is_well(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


def test_the_web_is_asked_whether_it_lives_and_beat_whether_the_life_cycle_runs() -> None:
    assert SERVICES["web"]["healthcheck"]["test"][-1].endswith("/livez")
    assert SERVICES["beat"]["healthcheck"]["test"][-1].endswith("/readyz")


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_containers_may_do_little(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


def test_secrets_are_files_that_the_repository_does_not_hold() -> None:
    declared = COMPOSE["secrets"]
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == set(declared)
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/deploy/run/secrets/", "/deploy/run/wms2.env"} <= set(ignored)
    for secret in declared.values():
        assert secret["file"].startswith("secrets/")
    for service in SERVICES.values():
        for name, value in (service.get("environment") or {}).items():
            assert not re.search(r"SECRET|PASSWORD|TOKEN(?!_DIR)", name) or str(value).startswith("/run/secrets/"), name


def test_volumes_are_declared_and_mounted_files_exist() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            elif not source.startswith("$"):
                assert source in COMPOSE["volumes"], f"{name}: {source}"


def test_the_image_has_what_the_processes_are_and_runs_as_an_ordinary_user() -> None:
    stages = re.findall(r"^FROM ", DOCKERFILE, re.M)
    last = DOCKERFILE.rsplit("FROM ", 1)[1]
    assert len(stages) == 2
    assert re.findall(r"^USER (\w+)$", last, re.M) == ["wms2"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M):
        for source in sources.split():
            assert (ROOT / source).exists(), source
            assert any(source == entry or source.startswith(f"{entry}/") for entry in allowed), (
                f"{source} is left out of the build"
            )
    for package in ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app", "templates"):
        assert f"COPY {package} " in last


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs that print how they were called and what they were told."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("gunicorn", "celery", "python"):
        program = place / name
        program.write_text('#!/bin/sh\necho "$(basename "$0") $*"\nenv\n')
        program.chmod(0o755)
    return place


def run(programs: Path, kind: str, *arguments: str, **environment: str) -> list[str]:
    settings = {"PATH": f"{programs}:{os.defpath}", "WMS2_STATE_DIR": str(programs.parent / "state"), **environment}
    result = subprocess.run(
        [DEPLOY / "process", kind, *arguments], env=settings, cwd="/", capture_output=True, text=True, check=True
    )
    return result.stdout.splitlines()


def test_a_process_is_told_where_its_counters_are_and_its_secrets_come_from_files(programs: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "WMS2_SECRET_KEY").write_text("from a 'file' $HOME\n")
    lines = run(programs, "worker", WMS2_SECRETS=str(secrets), HOSTNAME="host1")
    assert lines[0].startswith("celery -A wms2 worker ")
    assert "WMS2_SECRET_KEY=from a 'file' $HOME" in lines
    assert f"PROMETHEUS_MULTIPROC_DIR={tmp_path}/state/metrics/worker-host1" in lines
    assert f"WMS2_METRICS_ROOT={tmp_path}/state/metrics" in lines
    assert (tmp_path / "state/metrics/worker-host1").is_dir()


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("web", "gunicorn --config python:deploy.run.web wms2.wsgi:application"),
        ("stream", "gunicorn --config python:deploy.run.stream wms2.stream.application:from_environment()"),
        ("beat", "celery -A wms2 beat "),
        ("worker", "celery -A wms2 worker -E -Q celery,effects "),
        ("verbs", "celery -A wms2 worker -E -Q verbs "),
        ("ticker", "celery -A wms2 worker -E -Q ticks "),
        ("flower", "celery -A wms2 flower --address=127.0.0.1 --port=5555 --conf=deploy/run/flower_config.py"),
        ("lifecycle", "python manage.py lifecycle_tick --loop"),
        ("prepare", "python manage.py migrate"),
    ],
)
def test_each_kind_is_the_program_it_should_be(programs: Path, kind: str, begins: str) -> None:
    assert run(programs, kind)[0].startswith(begins)


def test_commands_get_the_same_settings(programs: Path) -> None:
    assert run(programs, "manage", "tokens", "list", "name of one")[0] == "python manage.py tokens list name of one"


@pytest.mark.parametrize("compiled", [False, True])
def test_what_python_compiles_is_kept_below_the_state_unless_it_lies_beside_the_code(
    programs: Path, tmp_path: Path, compiled: bool
) -> None:
    app = tmp_path / "app"
    (app / "wms2/__pycache__" if compiled else app / "wms2").mkdir(parents=True)
    (app / "deploy/run").mkdir(parents=True)
    process = shutil.copy(DEPLOY / "process", app / "deploy/run/process")
    settings = {"PATH": f"{programs}:{os.defpath}", "WMS2_STATE_DIR": str(tmp_path / "state")}
    reported = subprocess.run([process, "manage"], env=settings, capture_output=True, text=True, check=True).stdout
    assert (f"PYTHONPYCACHEPREFIX={tmp_path}/state/bytecode-{os.getuid()}\n" in reported) is not compiled


def test_an_unknown_kind_is_refused_by_name(programs: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        run(programs, "wbe")
    assert refusal.value.returncode == 2
    assert "no process wbe" in refusal.value.stderr


def test_a_missing_state_directory_is_told(programs: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        run(programs, "web", WMS2_STATE_DIR="")
    assert "WMS2_STATE_DIR" in refusal.value.stderr


def test_the_health_check_tells_a_server_from_none(httpserver: Any, capsys: pytest.CaptureFixture[str]) -> None:
    httpserver.expect_request("/livez", headers={"X-Forwarded-Proto": "https"}).respond_with_json({"status": "ok"})
    httpserver.expect_request("/readyz").respond_with_json({"reasons": {"broker": "does not answer"}}, status=503)
    assert healthy.main([httpserver.url_for("/livez")]) == 0
    assert healthy.main([httpserver.url_for("/readyz")]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert healthy.main(["http://127.0.0.1:9/livez"]) == 1


def test_compose_itself_accepts_the_file(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no `docker compose` here")
    settings = {**os.environ, **dict.fromkeys(("WMS2_SUBMIT_ROOT", "WMS2_CONDOR_DIRECTORY", "WMS2_RUCIO_DIRECTORY"), "/x")}
    copy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "wms2.env").write_text((copy / "wms2.env.example").read_text())
    argv = [docker, "compose", "-f", copy / "compose.yml", "--profile", "monitoring", "config", "--format", "json"]
    result = subprocess.run(argv, env=settings, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)["services"]) >= set(OURS) - {"lifecycle"}


def test_the_licence_is_told_by_the_project_and_lies_in_the_image() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert re.search(r"^COPY .*\bLICENSE\b.* /opt/wms2/app/$", DOCKERFILE, re.M)
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text().splitlines()
