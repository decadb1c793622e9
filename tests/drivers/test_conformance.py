"""Every driver passes every check of the suite, with a real agent. See `conftest.HARNESSES`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.at_length import at_length
from tests.drivers import checks
from tests.drivers.conftest import HARNESSES
from tests.drivers.harness import Harness
from tests.drivers.sandbox_harness import NoopHarness
from tests.drivers.stage import run

FAULTS = [
    checks.survives_kills_of_a_provision, checks.survives_kills_of_a_release, checks.withstands_a_full_disk,
]  # fmt: skip
SOUND = [check for check in checks.CHECKS if check not in FAULTS]
# The faults of the template take half a minute of a processor, and a full disk under guests of QEMU two and a half.
IN_USE = [harness for harness in HARNESSES if harness.name != "template"]


def of_each_driver(soon: list[type[Harness]]) -> pytest.MarkDecorator:
    """Each driver; those that are not `soon` in `make test-full` alone."""
    drivers = [
        pytest.param(harness, marks=[*harness.marks, *([] if harness in soon else [pytest.mark.full])], id=harness.name)
        for harness in HARNESSES
    ]
    return pytest.mark.parametrize("harness", drivers, indirect=True)


@pytest.mark.parametrize("check", at_length(SOUND, SOUND[::2]), ids=lambda check: check.__name__)
def test_conforms(harness: Harness, check: Any, tmp_path: Path) -> None:
    assert run(harness, tmp_path, check) is None


@pytest.mark.full
@of_each_driver(IN_USE)
@pytest.mark.parametrize("check", at_length(FAULTS[:2], FAULTS[:1]), ids=lambda check: check.__name__)
def test_survives_kills(harness: Harness, check: Any, tmp_path: Path) -> None:
    assert run(harness, tmp_path, check) is None


# Long. `test_survives_kills` strikes the same effects.
@pytest.mark.full
@of_each_driver(IN_USE[:1])
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


@pytest.mark.full
@pytest.mark.quick("brings_up_and_takes_down", "leaves_nothing_of_a_tenant")
@pytest.mark.parametrize(
    "check",
    [check for check in checks.CHECKS if check is not checks.releases_what_never_existed],
    ids=lambda check: check.__name__,
)
def test_a_driver_that_only_claims_is_found_out(check: Any, tmp_path: Path) -> None:
    assert run(NoopHarness(), tmp_path, check) is not None
