"""The medium that `make deploy-medium` built; without it, or without what boots it, the tests are skipped."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metal.lab import GUEST_IMAGE, MEDIUM, Lab
from tests.metal.media import with_driver
from tests.metal.server import Orders, serving

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def driven_medium(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = subprocess.run([ROOT / "deploy/metal/missing-packages", "--boot"], capture_output=True, text=True)
    if missing.returncode != 0:
        pytest.skip(missing.stdout.strip())
    if not MEDIUM.exists():
        pytest.skip("BERTH_TEST_DEPLOY_MEDIUM names no deploy medium: make deploy-medium")
    if not GUEST_IMAGE.exists():
        pytest.skip("BERTH_TEST_GUEST_IMAGE names no image: make build/guests/mini.qcow2")
    return with_driver(MEDIUM, tmp_path_factory.mktemp("medium"))


@pytest.fixture
def lab(driven_medium: Path, tmp_path: Path) -> Iterator[Lab]:
    orders = Orders()
    with serving(tmp_path, orders) as (port, ca_pem):
        yield Lab(tmp_path, driven_medium, orders, port, ca_pem)
    for disk in tmp_path.glob("*.raw"):
        disk.unlink()
    shutil.rmtree(tmp_path / "overlay", ignore_errors=True)
