"""The libvirt driver keeps the contract of drivers with tenant networks too."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import checks
from tests.drivers.bridged_harness import BridgedHarness, own_host
from tests.drivers.libvirt_harness import usable
from tests.drivers.stage import run, small_disk

# By emulation the check that kills a release at each step takes three minutes.
pytestmark = [pytest.mark.hardware, pytest.mark.full]


@pytest.fixture
def harness() -> Iterator[BridgedHarness]:
    made = usable(BridgedHarness())
    with own_host():
        yield made


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_conforms(harness: BridgedHarness, check: Any, tmp_path: Path) -> None:
    if check is not checks.withstands_a_full_disk:
        assert run(harness, tmp_path, check) is None
        return
    with small_disk(harness.directory(tmp_path / "agent"), harness.small_disk_bytes) as mounted:
        if mounted is None:
            pytest.skip("a full disk is not tested: this user may not mount a tmpfs")
        assert run(harness, tmp_path, functools.partial(check)) is None
