"""Builds an overlay as `kubectl kustomize` does, as far as the overlays of deploy/kubernetes go; anything else is refused.

Kustomize is a separate program, which is not installed everywhere. What this builds is compared with it where kubectl is
(test_kustomize.py).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]

KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images", "replicas"}
MERGE_KEYS = {
    "containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort",
}  # fmt: skip
"""Lists of the API whose items a patch addresses by this member; a patch replaces every other list."""
CLUSTER_WIDE = {"Namespace"}
REPLICATED = {"Deployment", "StatefulSet"}


def build(folder: Path) -> list[Resource]:
    """Every object of the kustomization in a folder. Raises ValueError for a field or a patch that this does not know."""
    return _apply(folder, [])


def _apply(folder: Path, resources: list[Resource]) -> list[Resource]:
    """The resources with those of the folder added, and its components and changes applied to all."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := kustomization.keys() - KNOWN:
        raise ValueError(f"{folder}: the builder of the tests does not know {sorted(unknown)}")
    for entry in kustomization.get("resources", ()):
        path = (folder / entry).resolve()
        resources += build(path) if path.is_dir() else [one for one in yaml.safe_load_all(path.read_text()) if one]
    for entry in kustomization.get("components", ()):
        resources = _apply((folder / entry).resolve(), resources)
    for patch in kustomization.get("patches", ()):
        _patch(resources, yaml.safe_load((folder / patch["path"]).read_text()), patch.get("target"))
    for resource in resources:
        _name_images(resource, kustomization.get("images", ()))
        _set_replicas(resource, kustomization.get("replicas", ()))
        if "namespace" in kustomization and resource["kind"] not in CLUSTER_WIDE:
            resource["metadata"]["namespace"] = kustomization["namespace"]
    return resources


def _patch(resources: list[Resource], patch: Resource, target: dict[str, str] | None) -> None:
    """Merge a patch into the resources of its target, or into the one that it names."""
    chosen = [one for one in resources if _is_target(one, patch, target)]
    if not chosen:
        raise ValueError(f"the patch {patch['metadata']['name']} changes nothing")
    for resource in chosen:
        kept = {name: resource[name] for name in ("apiVersion", "kind")}
        name = resource["metadata"]["name"]
        change = {key: value for key, value in patch.items() if key not in ("apiVersion", "kind")}
        resource.update(_merged(resource, change, is_native="cnpg.io" not in resource["apiVersion"]))
        resource.update(kept)
        resource["metadata"]["name"] = name


def _is_target(resource: Resource, patch: Resource, target: dict[str, str] | None) -> bool:
    if target is None:
        return (resource["kind"], resource["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])
    if unknown := target.keys() - {"kind", "name", "labelSelector"}:
        raise ValueError(f"the builder of the tests does not know targets by {sorted(unknown)}")
    if (
        resource["kind"] != target["kind"]
        or target.get("name", resource["metadata"]["name"]) != resource["metadata"]["name"]
    ):
        return False
    label, _, value = target.get("labelSelector", "").partition("=")
    return not label or resource["metadata"].get("labels", {}).get(label) == value


def _merged(old: Any, change: Any, *, is_native: bool, member: str = "") -> Any:
    """A strategic merge of the API's own kinds; a JSON merge patch of others."""
    if isinstance(old, dict) and isinstance(change, dict):
        merged = dict(old)
        for key, value in change.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = _merged(old.get(key), value, is_native=is_native, member=key)
        return merged
    key = MERGE_KEYS.get(member) if is_native else None
    if key is None or not isinstance(old, list):
        return copy.deepcopy(change)
    items = {item[key]: item for item in old}
    for item in change:
        items[item[key]] = _merged(items.get(item[key]), item, is_native=is_native)
    return list(items.values())


def pod_of(resource: Resource) -> Resource | None:
    """The specification of a workload's pods; None for another kind of object."""
    if resource["kind"] not in {*REPLICATED, "Job"}:
        return None
    found: Resource = resource["spec"]["template"]["spec"]
    return found


def _name_images(resource: Resource, images: Any) -> None:
    for container in (pod_of(resource) or {}).get("containers", ()):
        for image in images:
            if container["image"].partition(":")[0].partition("@")[0] == image["name"]:
                version = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
                container["image"] = f"{image.get('newName', image['name'])}{version}"


def _set_replicas(resource: Resource, replicas: Any) -> None:
    for one in replicas:
        if resource["kind"] in REPLICATED and resource["metadata"]["name"] == one["name"]:
            resource["spec"]["replicas"] = one["count"]


def normalized(value: Any, member: str = "") -> Any:
    """Lists whose order means nothing are sorted, so that two builds can be compared."""
    if isinstance(value, dict):
        return {key: normalized(item, key) for key, item in value.items()}
    if isinstance(value, list):
        items = [normalized(item) for item in value]
        key = MERGE_KEYS.get(member)
        is_keyed = key is not None and all(isinstance(item, dict) and key in item for item in items)
        return sorted(items, key=lambda item: str(item[key])) if is_keyed else items
    return value
