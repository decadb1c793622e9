"""A rented machine for each scene."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.sites import tenancies
from tests.sites.renting.tenancy import Scene, renting, ssh_server


@pytest.fixture
def play(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene with a machine that is behind a BMC, and an SSH server in its place."""

    def played(scene: Scene) -> None:
        async def whole() -> None:
            async with (
                ssh_server(lambda port: monkeypatch.setattr(tenancies, "SSH_PORT", port)) as host_key,
                renting(database_url, tmp_path) as rent,
            ):
                rent.host_key = host_key
                await scene(rent)

        asyncio.run(whole())

    return played
