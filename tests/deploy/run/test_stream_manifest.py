"""The process ``stream`` on Kubernetes: the manifest fits the program, its settings, its image, and itself."""

from __future__ import annotations

import re
from typing import Any

import yaml

from deploy.stack import paths
from wms2.conf import Conf
from wms2.stream import application

RUN = paths.checkout() / "deploy/run"
FOUND: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((RUN / "kubernetes/stream.yml").read_text())
}


def test_it_runs_the_process_of_the_image_with_its_settings_as_compose_does() -> None:
    pod = FOUND["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    compose = yaml.safe_load((RUN / "compose.yml").read_text())["services"]["stream"]
    assert container["args"] == compose["command"]
    assert f"{container['args'][0]}) exec " in (RUN / "process").read_text()
    env = {each["name"]: each["value"] for each in container["env"]}
    bound = ("WMS2_BIND", "STREAM_PORT")
    assert env.keys() <= {f"WMS2_{name.upper()}" for name in Conf.model_fields} | set(bound)
    assert [env[name] for name in bound] == [compose["environment"][name] for name in bound]
    assert int(env["WMS2_STREAM_READERS"]) == Conf.model_fields["stream_readers"].default
    (port,) = container["ports"]
    assert str(port["containerPort"]) == env["STREAM_PORT"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/livez", "port": port["name"]}
    docker = (RUN / "Dockerfile").read_text()
    assert f"--uid {pod['securityContext']['runAsUser']} " in docker
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts >= set(re.findall(r"WMS2_(?:STATE_DIR|METRICS_ROOT)=(\S+)", docker)) | {"/run/secrets", "/tmp"}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] > 5 + 10, "the pause before it, and gunicorn's graceful_timeout"


def test_its_service_and_address_lead_to_it_without_buffers_for_longer_than_it_is_silent() -> None:
    template, service = FOUND["Deployment"]["spec"]["template"], FOUND["Service"]
    labels = template["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == FOUND["Deployment"]["spec"]["selector"]["matchLabels"]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == template["spec"]["containers"][0]["ports"][0]["name"]
    (path,) = FOUND["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    there = {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert (path["path"], path["pathType"], path["backend"]["service"]) == ("/stream", "Exact", there)
    said = FOUND["Ingress"]["metadata"]["annotations"]
    assert said["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(said["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 2 * application.HEARTBEAT_SECONDS
