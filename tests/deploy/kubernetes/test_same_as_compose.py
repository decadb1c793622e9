"""The manifests say what deploy/compose.yaml says: the same processes, commands, variables, files, bounds and networks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import deployment
from tests.deploy.deployment import DEPLOY, SETTINGS, mounted_secrets, our_services, process, services, target
from tests.deploy.kubernetes.manifests import (
    BY_HAND,
    FOLDERS,
    OVERLAYS,
    container,
    files,
    settings_variables,
    uses,
    variables,
    workloads,
)

ONLY_OF_COMPOSE = {"image-check"}
"""deploy/kubernetes/check-images does its work, before anything is applied."""
ONLY_OF_KUBERNETES = {"CONSOLE_HOST", "PROCESS_NUMBER", "BERTH_LOG_STREAM_REPLICAS"}
"""The parts of an address, and a setting that Compose, with its one server of NATS, leaves at its default."""
SERVED = {"orchestrator-public": "api"}
"""A network of Compose on which a process is because it is the server there."""
SHARED = [(folder, name) for folder in FOLDERS for name in workloads(folder)]


def service_of(name: str) -> dict[str, Any]:
    """The service of Compose that is the same process."""
    return our_services()[name]


def test_every_process_of_compose_is_here() -> None:
    assert workloads("with-audit-stream").keys() == our_services().keys() - ONLY_OF_COMPOSE
    for folder in OVERLAYS:
        assert workloads(folder).keys() == our_services().keys() - ONLY_OF_COMPOSE - {"audit-stream"}


def built_in(name: str, keyword: str) -> list[str]:
    """What the image of a process runs: ENTRYPOINT or CMD of its target in the Dockerfile, or of the target before."""
    text = (DEPLOY / "Dockerfile").read_text()
    stages = {match[1]: match[0] for match in re.finditer(r"(?s)FROM \S+ AS (\w+)\n.*?(?=\nFROM |\Z)", text)}
    for stage in (target(service_of(name)), "process"):
        found = re.search(rf"^{keyword} \[(.*)\]$", stages[stage], re.MULTILINE)
        if found:
            return [word.strip().strip('"') for word in found[1].split(",")]
    return []


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_a_container_runs_the_command_of_its_service(folder: str, name: str) -> None:
    found = container(workloads(folder)[name])
    if name == BY_HAND:
        assert found["command"] == ["sleep", "infinity"]
        return
    wanted = [*built_in(name, "ENTRYPOINT"), *service_of(name).get("command", built_in(name, "CMD"))]
    assert [*found.get("command", built_in(name, "ENTRYPOINT")), *found.get("args", ())] == wanted


@pytest.mark.parametrize(
    "name", [name for name, one in workloads("with-audit-stream").items() if "-m" in container(one).get("command", ())]
)
def test_a_process_accepts_its_command(name: str) -> None:
    entrypoint, python, option, module, *rest = container(workloads("with-audit-stream")[name])["command"]
    assert (entrypoint, python, option) == ("berth-entrypoint", "python", "-m")
    if module == "outbox_relay":
        assert rest == [], "it takes no options"
        return
    done = subprocess.run([sys.executable, "-m", module, *rest, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_a_container_has_the_variables_of_its_service(folder: str, name: str) -> None:
    found = variables(folder, workloads(folder)[name])
    wanted = dict(service_of(name).get("environment", {}))
    if name == "orchestrator-public":
        assert wanted.pop("BERTH_CONSOLE_ADDRESS") == "consoles.example.org:8444"
        assert found.pop("BERTH_CONSOLE_ADDRESS") == "consoles.example.org:30440"
        second = variables(folder, workloads(folder)[name], number=1)
        assert second["BERTH_CONSOLE_ADDRESS"] == "consoles.example.org:30441"
    if folder == "production":
        for variables_of_one in (found, wanted):
            variables_of_one.pop("BERTH_FOUR_EYES", None)
    assert {key: value for key, value in found.items() if key not in ONLY_OF_KUBERNETES} == wanted


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_a_container_has_the_files_of_its_service(folder: str, name: str) -> None:
    declared = deployment.compose()["secrets"]
    wanted = {path: Path(declared[one]["file"]).name for path, one in mounted_secrets(service_of(name)).items()}
    assert files(workloads(folder)[name]) == wanted


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled."""
    directory = tmp_path_factory.mktemp("kubernetes") / "secrets"
    deployment.make_secrets(directory)
    return directory


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_every_variable_is_a_setting_and_none_is_missing(
    folder: str, name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS[process(service_of(name))]
    found = settings_variables(folder, workloads(folder)[name], secrets)
    assert found.keys() - deployment.known_variables(settings) == set(), "unknown to the process"
    assert deployment.required_variables(settings) - found.keys() == set(), "required by the process"
    for variable, value in found.items():
        monkeypatch.setenv(variable, value)
    settings()


def test_the_log_is_kept_by_as_many_servers_as_there_are() -> None:
    for folder, replicas in (("small", "1"), ("production", "3")):
        assert variables(folder, workloads(folder)["relay"])["BERTH_LOG_STREAM_REPLICAS"] == replicas


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_a_container_has_the_bound_of_memory_of_its_service(folder: str, name: str) -> None:
    wanted = service_of(name)["deploy"]["resources"]["limits"]["memory"]
    assert container(workloads(folder)[name])["resources"]["limits"]["memory"] == f"{wanted}i"


@pytest.mark.parametrize(("folder", "name"), SHARED)
def test_a_pod_uses_the_networks_of_its_service(folder: str, name: str) -> None:
    networks = set(service_of(name)["networks"]) - {"edge"} - {SERVED.get(name)}
    assert uses(workloads(folder)[name]) == networks


def test_images_of_the_small_overlay_are_those_of_compose() -> None:
    for name, workload in workloads("small").items():
        assert container(workload)["image"] == services()[name]["image"]
