"""Every object of every overlay: valid for the API, and every container restricted, probed, bounded and spread."""

from __future__ import annotations

import subprocess
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from orchestrator.settings import Settings as OrchestratorSettings
from outbox_relay.settings import Settings as RelaySettings
from tests.deploy.deployment import example_environment
from tests.deploy.kubernetes.kustomization import Resource
from tests.deploy.kubernetes.manifests import (
    BY_HAND,
    FOLDERS,
    KUBERNETES,
    ONCE,
    OVERLAYS,
    container,
    kept_running,
    labels,
    of_kind,
    pod,
    resources,
    values,
    workloads,
)
from worker.settings import Settings as WorkerSettings

VERSIONS = ("1.32", "1.37")
"""The oldest that the manifests are for (pods of a stateful set have their number as a label), and the newest of the schemas."""
OF_OPERATORS = {"postgresql.cnpg.io/v1"}
"""Kinds that Kubernetes has only with their operator; test_servers.py is about them."""
DRAIN_SECONDS = 20
ALL_WORKLOADS = [(folder, name) for folder in FOLDERS for name in workloads(folder)]
ALL_PROCESSES = [(folder, name) for folder in FOLDERS for name in kept_running(folder)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_is_one_of_the_api(folder: str, version: str) -> None:
    """Strictly: a member that the API does not know is refused too."""
    checked = 0
    for resource in resources(folder):
        if resource["apiVersion"] not in OF_OPERATORS:
            kubernetes_validate.validate(resource, version, strict=True)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    "broken", [{"replica": 2}, {"replicas": "two"}, {"template": {"spec": {"containers": [{"image": "x"}]}}}]
)
def test_an_object_with_a_mistake_is_refused(broken: dict[str, Any]) -> None:
    worker = workloads("small")["worker"]
    worker["spec"] |= broken
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(worker, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_object_is_there_twice_and_all_are_in_one_namespace(folder: str) -> None:
    found = [(one["kind"], one["metadata"]["name"]) for one in resources(folder)]
    assert len(found) == len(set(found))
    assert {one["metadata"].get("namespace") for one in resources(folder) if one["kind"] != "Namespace"} == {"berth"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_manifest_contains_a_secret(folder: str) -> None:
    assert not of_kind(folder, "Secret")
    for resource in resources(folder):
        for name, value in resource.get("data", {}).items():
            assert "BEGIN" not in value
            assert "@" not in value, name


@pytest.mark.parametrize(("folder", "name"), ALL_WORKLOADS)
def test_a_container_has_no_rights_that_it_does_not_need(folder: str, name: str) -> None:
    workload = workloads(folder)[name]
    assert pod(workload)["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert container(workload)["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod(workload).keys()
    for volume in pod(workload)["volumes"]:
        assert volume.keys() - {"name"} <= {"secret", "emptyDir"}
    written = [one["mountPath"] for one in container(workload)["volumeMounts"] if not one.get("readOnly")]
    assert written == ["/tmp"]


@pytest.mark.parametrize(("folder", "name"), ALL_WORKLOADS)
def test_a_pod_has_its_own_account_without_a_token(folder: str, name: str) -> None:
    workload = workloads(folder)[name]
    account = of_kind(folder, "ServiceAccount")[name]
    assert pod(workload)["serviceAccountName"] == name
    assert pod(workload)["automountServiceAccountToken"] is False
    assert account["automountServiceAccountToken"] is False
    assert not {one["kind"] for one in resources(folder)} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


@pytest.mark.parametrize(("folder", "name"), ALL_WORKLOADS)
def test_a_container_requests_what_it_uses_and_is_bounded(folder: str, name: str) -> None:
    demanded = container(workloads(folder)[name])["resources"]
    assert demanded["requests"].keys() == {"cpu", "memory"}
    assert demanded["limits"].keys() == {"memory"}, "a bound of the processor's time would stall the event loop"
    assert mebibytes(demanded["requests"]["memory"]) <= mebibytes(demanded["limits"]["memory"])


MEASURED_MB = {
    "orchestrator-public": 264,  # beside 2,000 hostile connections (docs/reference/performance.md)
    "orchestrator-node": 129 + 0.0529 * 5_000,  # after its start, and each waiting node (docs/explanation/scale.md)
    "issuer": 128, "webhooks": 68,  # after their start (docs/how-to/servers/run-on-kubernetes.md)
    "relay": 41, "worker": 157,  # over 50,000 nodes after a load (docs/explanation/performance-history.md)
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED_MB)
def test_a_process_requests_at_least_the_memory_that_was_measured(name: str) -> None:
    requested = mebibytes(container(workloads("production")[name])["resources"]["requests"]["memory"]) * 1.048576
    assert MEASURED_MB[name] < requested < 2 * MEASURED_MB[name]


def mebibytes(quantity: str) -> float:
    """A quantity of memory."""
    number, unit = quantity[:-2], quantity[-2:]
    return float(number) * {"Mi": 1, "Gi": 1024}[unit]


@pytest.mark.parametrize(("folder", "name"), ALL_PROCESSES)
def test_readiness_asks_for_servers_and_liveness_does_not(folder: str, name: str) -> None:
    workload = kept_running(folder)[name]
    found = container(workload)
    (metrics,) = [port for port in found["ports"] if port["name"] == "metrics"]
    assert metrics["containerPort"] == 9100
    paths = {kind: found[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert paths == {
        "startup": {"path": "/live", "port": "metrics"}, "readiness": {"path": "/ok", "port": "metrics"},
        "liveness": {"path": "/live", "port": "metrics"},
    }  # fmt: skip
    assert workload["metadata"]["labels"]["berth/keeps-running"] == "true"


def test_a_process_may_use_the_time_that_it_has_to_start() -> None:
    probe = container(kept_running("small")["orchestrator-public"])["startupProbe"]
    longest = max(
        OrchestratorSettings.model_fields["startup_seconds_max"].default,
        RelaySettings.model_fields["relay_startup_seconds_max"].default,
        WorkerSettings.model_fields["startup_seconds_max"].default,
    )
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 2 * longest


@pytest.mark.parametrize(("folder", "name"), ALL_PROCESSES)
def test_a_pod_has_the_time_to_drain(folder: str, name: str) -> None:
    workload = kept_running(folder)[name]
    (sleep, seconds) = container(workload)["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert pod(workload)["terminationGracePeriodSeconds"] >= int(seconds) + DRAIN_SECONDS + 5
    graceful = WorkerSettings.model_fields["worker_graceful_stop_seconds"].default
    assert graceful <= DRAIN_SECONDS


@pytest.mark.parametrize(("folder", "name"), ALL_PROCESSES)
def test_replicas_are_kept_apart_and_not_evicted_together(folder: str, name: str) -> None:
    workload = kept_running(folder)[name]
    budget = of_kind(folder, "PodDisruptionBudget")[name]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == workload["spec"]["selector"]
    assert budget["selector"]["matchLabels"].items() <= labels(workload).items()
    spread = {one["topologyKey"]: one for one in pod(workload)["topologySpreadConstraints"]}
    assert spread.keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert spread["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
    for one in spread.values():
        assert one["labelSelector"]["matchLabels"].items() <= labels(workload).items()
        assert {"app.kubernetes.io/name", "pod-template-hash"} <= set(one["matchLabelKeys"])


def test_production_runs_two_of_each_process_and_small_one() -> None:
    assert {name: one["spec"]["replicas"] for name, one in kept_running("production").items()} == dict.fromkeys(
        kept_running("small"), 2
    )
    assert {one["spec"]["replicas"] for one in kept_running("small").values()} == {1}
    for folder in OVERLAYS:
        assert workloads(folder)[BY_HAND]["spec"]["replicas"] == 0


@pytest.mark.parametrize("folder", OVERLAYS)
def test_each_public_process_has_its_own_address_for_consoles(folder: str) -> None:
    workload = kept_running(folder)["orchestrator-public"]
    assert workload["kind"] == "StatefulSet"
    consoles = {name: one["spec"] for name, one in of_kind(folder, "Service").items() if name.startswith("consoles-")}
    assert len(consoles) == workload["spec"]["replicas"]
    for number in range(workload["spec"]["replicas"]):
        spec = consoles[f"consoles-{number}"]
        (port,) = spec["ports"]
        assert spec["selector"]["apps.kubernetes.io/pod-index"] == str(number)
        assert (port["targetPort"], port["nodePort"]) == ("consoles", 30440 + number)


@pytest.mark.parametrize("folder", FOLDERS)
def test_services_lead_to_ports_of_pods(folder: str) -> None:
    for name, service in of_kind(folder, "Service").items():
        selector = {key: value for key, value in service["spec"]["selector"].items() if "pod-index" not in key}
        if selector.get("app.kubernetes.io/part-of") != "berth":
            continue
        (found,) = [one for one in workloads(folder).values() if selector.items() <= labels(one).items()]
        ports = {port["name"] for port in container(found)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name


def images(folder: str) -> dict[str, str]:
    """Every image of an overlay's manifests, by workload."""
    found = {name: container(one)["image"] for name, one in workloads(folder).items()}
    return found | {name: one["spec"]["imageName"] for name, one in of_kind(folder, "Cluster").items()}


def checked(manifests: str) -> subprocess.CompletedProcess[str]:
    """What deploy/kubernetes/check-images says of manifests."""
    return subprocess.run([str(KUBERNETES / "check-images")], input=manifests, capture_output=True, text=True)


def as_text(found: list[Resource]) -> str:
    """Manifests as Kustomize prints them."""
    return yaml.safe_dump_all(found, default_flow_style=False)


def test_production_is_refused_until_every_image_has_a_digest() -> None:
    text = as_text(resources("production"))
    assert {image.partition("@")[2] for image in images("production").values()} == {f"sha256:{'0' * 64}"}
    refused = checked(text)
    assert refused.returncode == 1
    assert "put the digests of your images" in refused.stderr
    filled = text.replace("0" * 64, "5" * 64)
    assert checked(filled).returncode == 0
    for image in sorted({one.partition("@")[0] for one in images("production").values()}):
        by_tag = checked(filled.replace(f"{image}@sha256:{'5' * 64}", f"{image.partition(':')[0]}:0.1.0"))
        assert by_tag.returncode == 1, image
        assert "is named by tag" in by_tag.stderr
    assert checked("kind: ConfigMap\n").returncode == 2


def test_images_of_charts_have_the_versions_that_compose_has() -> None:
    nats, temporal = values("servers/nats-values.yaml"), values("servers/temporal-values.yaml")
    example = example_environment()
    of_nats, of_server, of_tools = (
        nats["container"]["image"], temporal["server"]["image"], temporal["admintools"]["image"],
    )  # fmt: skip
    assert f"{of_nats['repository']}:{of_nats['tag']}" == example["NATS_IMAGE"]
    assert f"{of_server['repository']}:{of_server['tag']}" == example["TEMPORAL_IMAGE"]
    assert f"{of_tools['repository']}:{of_tools['tag']}" == example["TEMPORAL_TOOLS_IMAGE"]


def test_the_migration_may_run_again_and_ends() -> None:
    job = workloads("small")[ONCE]
    assert job["kind"] == "Job"
    assert pod(job)["restartPolicy"] == "OnFailure"
    assert {"backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"} <= job["spec"].keys()
