"""A rolling upgrade under load: from the last release to the present code, back by its processes, and forward again.

    python -m tests.upgrade --minutes 2 --seed 7

The load, the clients and the judges are those of a campaign (tests/campaign) without machines and faults; `judging.py` evaluates
every request. The schema is upgraded once and stays. Processes, agents included, are replaced in orders that the seed decides.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign.casting import CampaignOptions
from tests.campaign.history import History, Injury
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.report import Report
from tests.campaign.running import run_on
from tests.campaign.stage import Stage
from tests.upgrade.judging import Exchange, is_judged_here, judge_requests, judge_sockets
from tests.upgrade.stage import UpgradeStage

VERSIONS = ("the present one", "the release again", "the present one again")
"""What all processes are exchanged for, one after the other."""
CALM_SHARE = 0.1
"""Of the duration, how long each state of the stage is left alone."""
PATIENCE_SECONDS_MAX = 60.0
"""How long clients wait for an answer, more than the library does: a request without one has failed."""


class RollingUpgrade:
    """What is done to the stage, step by step. Each step is noted as an injury of the history."""

    def __init__(self, stage: UpgradeStage, history: History, calm_seconds: float) -> None:
        self._stage = stage
        self._history = history
        self._calm_seconds = calm_seconds
        self._chance = random.Random(history.seed)
        self._stopping = threading.Event()
        self.exchanges: list[Exchange] = []

    def run(self) -> None:
        """Upgrade, step back, upgrade again; then sign the key set that only the present code reads."""
        self._calm()
        self._step("migrate", "schema", self._stage.migrate)
        for _ in VERSIONS:
            self._calm()
            names = list(self._stage.process_names)
            self._chance.shuffle(names)
            for name in names:
                self._step("exchange", name, lambda name=name: self._exchange(name))  # type: ignore[misc]
        self._step("sign", "key set", self._stage.complete_key_set)
        self._calm()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()

    def _calm(self) -> None:
        self._stopping.wait(self._calm_seconds)

    def _exchange(self, name: str) -> None:
        of_release, began = self._stage.is_release(name), time.monotonic()
        try:
            self._stage.exchange(name)
        finally:
            url = self._stage.url_of(name)
            self.exchanges.append(Exchange(name, url, of_release, began, time.monotonic()))

    def _step(self, kind: str, target: str, act: Callable[[], None]) -> None:
        if self._stopping.is_set():
            return
        now = time.monotonic()
        injury = Injury(kind, target, now - self._history.began, now)
        self._history.injuries.append(injury)
        try:
            act()
        except Exception as error:  # noqa: BLE001 - noted and judged; the other steps are taken all the same
            injury.error = f"{type(error).__name__}: {error}"
        injury.ended = time.monotonic()


def run_upgrade(
    directory: Path, seconds: float, seed: int, agents: int = 4, clients: int = 4
) -> tuple[Report, History]:
    """Play it and judge it, every request included."""
    options = CampaignOptions(
        directory / "var", seconds, seed, agents=agents, clients=clients, machines=0,
        attempt_seconds_max=PATIENCE_SECONDS_MAX,
    )  # fmt: skip
    stage = UpgradeStage(directory, agents)
    upgrades: list[RollingUpgrade] = []

    def disturb(_: Stage, history: History) -> RollingUpgrade:
        upgrades.append(RollingUpgrade(stage, history, seconds * CALM_SHARE))
        return upgrades[0]

    report, history = run_on(options, stage, disturb)
    exchanges = upgrades[0].exchanges
    report.violations = [violation for violation in report.violations if not is_judged_here(violation)]
    report.violations += [*judge_requests(history.attempts, exchanges), *judge_sockets(history.sessions, exchanges)]
    report.violations += [
        Violation("upgrade", f"{injury.kind} {injury.target}: {injury.error}")
        for injury in history.injuries
        if injury.error
    ]
    return report, history
