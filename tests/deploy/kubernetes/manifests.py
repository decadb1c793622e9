"""The built overlays as the tests see them: workloads by name, their container, its variables and its files."""

from __future__ import annotations

import copy
import re
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.deployment import DEPLOY
from tests.deploy.kubernetes.kustomization import Resource, build, pod_of

KUBERNETES = DEPLOY / "kubernetes"
FOLDERS = {
    "small": KUBERNETES / "overlays" / "small",
    "production": KUBERNETES / "overlays" / "production",
    "with-audit-stream": Path(__file__).parent / "with-audit-stream",
}
"""Every kustomization that the tests build."""
OVERLAYS = ("small", "production")
"""Those of an installation, with its servers."""
BY_HAND = "operator"
"""The only workload of no replica: an operator scales it up to use it."""
ONCE = "migrate"


@lru_cache
def _built(name: str) -> list[Resource]:
    return build(FOLDERS[name])


def resources(name: str) -> list[Resource]:
    """Every object of a built kustomization."""
    return copy.deepcopy(_built(name))


def of_kind(name: str, kind: str) -> dict[str, Resource]:
    """The objects of a kind by their name."""
    return {one["metadata"]["name"]: one for one in resources(name) if one["kind"] == kind}


def workloads(name: str) -> dict[str, Resource]:
    """Deployments, stateful sets and jobs by their name."""
    return {one["metadata"]["name"]: one for one in resources(name) if pod_of(one) is not None}


def kept_running(name: str) -> dict[str, Resource]:
    """Those that keep running."""
    return {key: one for key, one in workloads(name).items() if key not in (BY_HAND, ONCE)}


def pod(workload: Resource) -> Resource:
    """The specification of its pods."""
    found = pod_of(workload)
    assert found is not None
    return found


def container(workload: Resource) -> Resource:
    """Its only container."""
    (found,) = pod(workload)["containers"]
    assert "initContainers" not in pod(workload)
    return dict(found)


def labels(workload: Resource) -> dict[str, str]:
    """The labels of its pods."""
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def uses(workload: Resource) -> set[str]:
    """The networks that its pods say they use, by labels `berth/<network>`."""
    return {label.removeprefix("berth/") for label in labels(workload) if label.startswith("berth/")}


def variables(name: str, workload: Resource, number: int = 0) -> dict[str, str]:
    """The variables of its container as the kubelet sets them, in the pod of this number."""
    settings = of_kind(name, "ConfigMap")["berth-settings"]["data"]
    found: dict[str, str] = {}
    for entry in container(workload)["env"]:
        if "value" in entry:
            # A reference to a variable that is not before it stays as it is.
            value = re.sub(r"\$\(([A-Z_]+)\)", lambda match: found.get(match[1], match[0]), entry["value"])
        elif "configMapKeyRef" in entry["valueFrom"]:
            reference = entry["valueFrom"]["configMapKeyRef"]
            assert reference["name"] == "berth-settings"
            value = settings[reference["key"]]
        else:
            assert entry["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
            value = str(number)
        found[entry["name"]] = value
    return found


def files(workload: Resource) -> dict[str, str]:
    """Path inside the container -> the file of deploy/make-secrets, which is the key of the workload's secret."""
    (mount,) = [one for one in container(workload)["volumeMounts"] if one["name"] == "secrets"]
    assert mount["readOnly"] is True
    (volume,) = [one for one in pod(workload)["volumes"] if one["name"] == "secrets"]
    return {f"{mount['mountPath']}/{item['path']}": item["key"] for item in volume["secret"]["items"]}


def settings_variables(name: str, workload: Resource, directory: Path) -> dict[str, str]:
    """The BERTH_ variables that the process sees, with real paths of a directory that deploy/make-secrets filled."""
    mounted = files(workload)
    found = {key: str(directory / mounted[value]) if value in mounted else value
             for key, value in variables(name, workload).items()}  # fmt: skip
    for inside, file in mounted.items():
        if Path(inside).name.startswith("BERTH_"):
            found[Path(inside).name] = (directory / file).read_text().strip()
    return {key: value for key, value in found.items() if key.startswith("BERTH_")}


def secret_manifests(directory: Path) -> dict[str, Resource]:
    """What deploy/kubernetes/secret-manifests prints, by name."""
    command = [str(KUBERNETES / "secret-manifests"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {one["metadata"]["name"]: one for one in yaml.safe_load_all(done.stdout)}


def values(*paths: str) -> dict[str, Any]:
    """Values of a chart, from these files of deploy/kubernetes, as Helm merges them."""
    merged: dict[str, Any] = {}
    for path in paths:
        _merge(merged, yaml.safe_load((KUBERNETES / path).read_text()))
    return merged


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)
