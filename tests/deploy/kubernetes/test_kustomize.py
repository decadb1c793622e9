"""The tests' builder of overlays builds what Kustomize builds, and refuses what it does not know."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.kubernetes.kustomization import Resource, build, normalized
from tests.deploy.kubernetes.manifests import FOLDERS


def key_of(resource: Resource) -> tuple[str, str]:
    """An object's kind and name."""
    return resource["kind"], resource["metadata"]["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which contains Kustomize, is not installed")
@pytest.mark.parametrize("name", FOLDERS)
def test_kustomize_builds_the_same(name: str) -> None:
    command = ["kubectl", "kustomize", str(FOLDERS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = {key_of(one): normalized(one) for one in yaml.safe_load_all(done.stdout)}
    ours = {key_of(one): normalized(one) for one in build(FOLDERS[name])}
    assert ours.keys() == theirs.keys()
    for key, resource in ours.items():
        assert resource == theirs[key], key


def written(folder: Path, text: str) -> Path:
    """A folder with this kustomization and one object."""
    (folder / "settings.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {}}")
    (folder / "patch.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {}}")
    (folder / "kustomization.yaml").write_text(text)
    return folder


def test_a_field_that_the_builder_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not know \\['namePrefix'\\]"):
        build(written(tmp_path, "{resources: [settings.yaml], namePrefix: x-}"))


def test_a_patch_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the patch b changes nothing"):
        build(written(tmp_path, "{resources: [settings.yaml], patches: [{path: patch.yaml}]}"))
