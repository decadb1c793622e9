"""The campaign's stage at the last release, whose processes are replaced one by one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import migrations
from berth.local.authority import sign_present_keys
from berth.local.processes import ChildProcess, ProcessPlan
from migrations.upgrading import SchemaProblem
from tests.campaign.stage import Stage
from tests.upgrade.release import migrate_as_release, unpack_release

END_SECONDS_MAX = 40.0
"""A process that is replaced ends in order: streams and polls have 20 s for their last messages."""

MIGRATE_SECONDS_MAX = 600.0
GAVE_WAY = "the migration did not run"


class UpgradeStage(Stage):
    """Starts wholly as the release: its schema, its functions, its processes."""

    def __init__(self, directory: Path, agents: int) -> None:
        super().__init__(directory / "var", agents)
        self.release = unpack_release(directory / "release")
        """The variables that choose its code."""

    def _migrate(self, database_url: str) -> str:  # type: ignore[override]
        # The first thing with the authority's files: no process has started.
        sign_present_keys(self.authority, deploy_cas=False)
        return migrate_as_release(self.release, database_url)

    def _with(self, plan: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
        return super()._with(plan, {**environment, **self.release})

    def migrate(self) -> None:
        """Upgrade the schema, by the present code; repeat it, as an operator would, while it gives way to traffic."""
        deadline = time.monotonic() + MIGRATE_SECONDS_MAX
        while True:
            try:
                migrations.upgrade(self.endpoints.database_url)
                return
            except SchemaProblem as problem:
                if GAVE_WAY not in str(problem) or time.monotonic() > deadline:
                    raise

    def complete_key_set(self) -> None:
        """Sign what the release refuses too: when every process has the present code."""
        sign_present_keys(self.authority)

    def is_release(self, name: str) -> bool:
        """Whether this process runs the code of the release."""
        return self.release.items() <= self._there(name).plan.environment.items()

    def url_of(self, name: str) -> str | None:
        """Where clients reach this process; None unless it is a public API."""
        return dict(zip(("api", "api-2"), self.api_urls, strict=True)).get(name)

    def exchange(self, name: str) -> None:
        """End a process in order and start its other version; return when it is ready."""
        self.restart(name, {} if self.is_release(name) else self.release)
        self._there(name).wait_ready()

    def restart(self, name: str, code: Mapping[str, str]) -> None:
        """End a process in order and start it with the code that these variables choose; it is not waited for."""
        child = self._there(name)
        kept = {name: value for name, value in child.plan.environment.items() if name not in self.release}
        if child.runs():
            assert child.process is not None
            child.terminate()
            child.process.wait(END_SECONDS_MAX)
        child.plan = replace(child.plan, environment={**kept, **code})
        child.spawn()

    @property
    def agent_names(self) -> list[str]:
        """The processes that are agents of nodes."""
        return [child.name for child in self._children if child.plan.module == "node_agent"]

    def _there(self, name: str) -> ChildProcess:
        child = self._child(name)
        assert child is not None, name
        return child
