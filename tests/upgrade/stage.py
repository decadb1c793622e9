"""The campaign's stage at the last release, whose processes are replaced one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import migrations
from berth.local.processes import ChildProcess, ProcessPlan
from tests.campaign.stage import Stage
from tests.upgrade.release import migrate_as_release, unpack_release

END_SECONDS_MAX = 40.0
"""A process that is replaced ends in order: streams and polls have 20 s for their last messages."""


class UpgradeStage(Stage):
    """Starts wholly as the release: its schema, its functions, its processes."""

    def __init__(self, directory: Path, agents: int) -> None:
        super().__init__(directory / "var", agents)
        self._release = unpack_release(directory / "release")

    def _migrate(self, database_url: str) -> str:  # type: ignore[override]
        return migrate_as_release(self._release, database_url)

    def _with(self, plan: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
        return super()._with(plan, {**environment, **self._release})

    def migrate(self) -> None:
        """Upgrade the schema, by the present code."""
        migrations.upgrade(self.endpoints.database_url)

    def is_release(self, name: str) -> bool:
        """Whether this process runs the code of the release."""
        return "PYTHONPATH" in self._there(name).plan.environment

    def exchange(self, name: str) -> None:
        """End a process in order and start its other version; return when it is ready."""
        child = self._there(name)
        environment = dict(child.plan.environment)
        if self.is_release(name):
            for variable in self._release:
                del environment[variable]
        else:
            environment |= self._release
        assert child.process is not None
        child.terminate()
        child.process.wait(END_SECONDS_MAX)
        child.plan = replace(child.plan, environment=environment)
        child.spawn()
        child.wait_ready()

    @property
    def agent_names(self) -> list[str]:
        """The processes that are agents of nodes."""
        return [child.name for child in self._children if child.plan.module == "node_agent"]

    def _there(self, name: str) -> ChildProcess:
        child = self._child(name)
        assert child is not None, name
        return child
