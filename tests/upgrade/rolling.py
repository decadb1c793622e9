"""A rolling upgrade under load: from the last release to the present code, back by its processes, and forward again.

    python -m tests.upgrade --minutes 2 --seed 7

The load, the clients and the judges are those of a campaign (tests/campaign). The schema is upgraded once and stays. Processes of
the control plane are replaced in an order that the seed decides, then the agents; the step back begins with the agents, because
an agent works with the version of its control plane and the next one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.campaign.casting import CampaignOptions
from tests.campaign.history import Attempt, History, Injury, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.report import Report
from tests.campaign.running import run_on
from tests.upgrade.stage import UpgradeStage

CALM_SHARE = 0.1
"""Of the duration, how long each state of the stage is left alone."""
AWAY = frozenset({"unreachable", "client_timeout"})
"""Codes of the client's library for a process that is being replaced."""
CUT_OFF = "the connection to "
"""How its sentence begins where a connection that was kept open ended under a request."""
RETRIED = frozenset({"overloaded", "database_unavailable"})
"""Codes of answers 503 without effect."""


class RollingUpgrade:
    """What is done to the stage, step by step. Each step is noted as an injury of the history."""

    def __init__(self, stage: UpgradeStage, history: History, calm_seconds: float) -> None:
        self._stage = stage
        self._history = history
        self._calm_seconds = calm_seconds
        self._chance = random.Random(history.seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Upgrade, step back, upgrade again; then sign the key set that only the present code reads."""
        control = [name for name in self._stage.process_names if name not in self._stage.agent_names]
        self._chance.shuffle(control)
        agents = self._stage.agent_names
        self._calm()
        self._step("migrate", "schema", self._stage.migrate)
        self._calm()
        self._exchange([*control, *agents])
        self._calm()
        self._exchange([*agents, *reversed(control)])
        self._calm()
        self._exchange([*control, *agents])
        self._step("sign", "key set", self._stage.complete_key_set)
        self._calm()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()

    def _calm(self) -> None:
        self._stopping.wait(self._calm_seconds)

    def _exchange(self, names: Iterable[str]) -> None:
        for name in names:
            self._step("exchange", name, lambda name=name: self._stage.exchange(name))  # type: ignore[misc]

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
        directory / "var", seconds, seed, agents=agents, clients=clients, key_clients=0, subscribes=False,
        changes_fleet=False, keeps_accounts=False,
    )  # fmt: skip
    stage = UpgradeStage(directory, agents)
    report, history = run_on(options, stage, lambda _, history: RollingUpgrade(stage, history, seconds * CALM_SHARE))
    report.violations += judge_requests(history.attempts)
    report.violations += [
        Violation("upgrade", f"{injury.kind} {injury.target}: {injury.error}")
        for injury in history.injuries
        if injury.error
    ]
    return report, history


def judge_requests(attempts: Iterable[Attempt]) -> list[Violation]:
    """A request may end as without an upgrade, meet a process that is being replaced, or be answered 503."""
    fine = {Outcome.DONE, Outcome.REFUSED, Outcome.FENCED, Outcome.CONFLICT, Outcome.IN_PROGRESS}
    return [
        Violation("request", f"{attempt.kind} of {attempt.client}: {attempt.outcome} {attempt.code} {attempt.answer}")
        for attempt in attempts
        if attempt.outcome not in fine
        and attempt.code not in AWAY | RETRIED
        and not (attempt.outcome is Outcome.UNKNOWN and attempt.answer.startswith(CUT_OFF))
    ]
