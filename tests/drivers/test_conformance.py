"""Every driver passes every check of the suite, with a real agent. See `conftest.HARNESSES`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import checks
from tests.drivers.conftest import HARNESSES
from tests.drivers.harness import Harness
from tests.drivers.sandbox_harness import NoopHarness
from tests.drivers.stage import run

FAULTS = [
    checks.survives_kills_of_a_provision, checks.survives_kills_of_a_release, checks.withstands_a_full_disk,
]  # fmt: skip
SOUND = [check for check in checks.CHECKS if check not in FAULTS]
# `make test` has the faults of the driver that is used; those of the template take half a minute of a processor.
IN_USE_FIRST = pytest.mark.parametrize(
    "harness",
    [HARNESSES[0], *(pytest.param(harness, marks=pytest.mark.full) for harness in HARNESSES[1:])],
    ids=[harness.name for harness in HARNESSES],
    indirect=True,
)


@pytest.mark.parametrize("check", SOUND, ids=lambda check: check.__name__)
def test_conforms(harness: Harness, check: Any, tmp_path: Path) -> None:
    assert run(harness, tmp_path, check) is None


@IN_USE_FIRST
@pytest.mark.parametrize("check", FAULTS[:2], ids=lambda check: check.__name__)
def test_survives_kills(harness: Harness, check: Any, tmp_path: Path) -> None:
    assert run(harness, tmp_path, check) is None


@IN_USE_FIRST
def test_withstands_a_full_disk(harness: Harness, disk: Path, tmp_path: Path) -> None:
    assert run(harness, tmp_path, checks.withstands_a_full_disk) is None
    assert disk.is_mount()


# One effect of each phase is struck by `test_survives_kills` and `test_withstands_a_full_disk`.
@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("check", FAULTS, ids=lambda check: check.__name__)
def test_conforms_at_every_effect(harness: Harness, check: Any, disk: Path, tmp_path: Path) -> None:
    assert run(harness, tmp_path, functools.partial(check, every_effect=True)) is None
    assert disk.is_mount()


@pytest.mark.parametrize(
    "check",
    [check for check in checks.CHECKS if check is not checks.releases_what_never_existed],
    ids=lambda check: check.__name__,
)
def test_a_driver_that_only_claims_is_found_out(check: Any, tmp_path: Path) -> None:
    assert run(NoopHarness(), tmp_path, check) is not None
