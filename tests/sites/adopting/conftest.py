"""A machine that runs already, for each scene."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.sites import tenancies
from tests.sites.adopting.machines import Scene, adopting
from tests.sites.renting.tenancy import ssh_server


@pytest.fixture
def play(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene with a machine that is on behind a BMC, and an SSH server in its place."""

    def played(scene: Scene) -> None:
        async def whole() -> None:
            async with (
                ssh_server(lambda port: monkeypatch.setattr(tenancies, "SSH_PORT", port)) as host_key,
                adopting(database_url, tmp_path) as rent,
            ):
                rent.host_key = host_key
                await scene(rent)

        asyncio.run(whole())

    return played
