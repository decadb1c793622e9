"""Fixtures: each driver in turn, on a small disk. A new driver adds its harness to `HARNESSES`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers.harness import Harness
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.drivers.on_volumes.harness import VolumeHarness
from tests.drivers.sandbox_harness import SandboxHarness
from tests.drivers.stage import small_disk
from tests.drivers.template_harness import TemplateHarness

HARNESSES: tuple[type[Harness], ...] = (SandboxHarness, TemplateHarness, LibvirtHarness, VolumeHarness)


@pytest.fixture(params=[pytest.param(harness, marks=harness.marks, id=harness.name) for harness in HARNESSES])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Each driver that this machine can run; one line says why another is left out."""
    made: Harness = request.param()
    if (reason := made.unavailable()) is not None:
        pytest.skip(f"the driver {made.name} cannot run here: {reason}")
    return made


@pytest.fixture
def disk(harness: Harness, tmp_path: Path) -> Iterator[Path]:
    """A small file system for everything that the driver keeps."""
    with small_disk(harness.directory(tmp_path / "agent"), harness.small_disk_bytes) as mounted:
        if mounted is None:
            pytest.skip("a full disk is not tested: this user may not mount a tmpfs")
        yield mounted
