"""Fixtures: a recorded machine, and the fake NVML library, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.discovery.fake_nvml import COMPILER, FakeNvml, build
from tests.discovery.trees import RecordedTree


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler builds the fake NVML library")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(nvml_library, tmp_path / "answers")


@pytest.fixture
def tree(tmp_path: Path) -> RecordedTree:
    return RecordedTree(tmp_path / "root")
