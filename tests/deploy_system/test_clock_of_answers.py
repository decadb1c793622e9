"""A deploy system has the time of the control plane's database, whatever the clock of the host that answers it says."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response

from orchestrator.nodes.deploy_systems import node_endpoints
from orchestrator.nodes.deploy_systems.identity import CallingDeploySystem
from orchestrator.nodes.deploy_systems.store import DeployStanding
from orchestrator.nodes.states import NodeState

DATABASE = datetime(2001, 1, 1, tzinfo=UTC)
"""What the database says, far from this host's clock."""


async def _no_task(*_: object) -> list[Any]:
    return []


def test_the_answer_to_a_wait_has_the_time_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_endpoints, "lease_deploy_task", _no_task)
    parts: Any = SimpleNamespace(context=None, dispatcher=SimpleNamespace(closed=True))
    standing = DeployStanding(
        id=uuid.uuid4(), node_id=uuid.uuid4(), deploy_epoch=1, not_after=DATABASE + timedelta(hours=1), ended_by=None,
        state=NodeState.CORDONED, is_over=False, server_time=DATABASE,
    )  # fmt: skip
    caller = CallingDeploySystem(standing, "1f")
    answer = asyncio.run(node_endpoints.wait_for_task(caller, parts, Response(), [], 0.0))
    assert answer.tasks == []
    assert DATABASE <= answer.server_time < DATABASE + timedelta(hours=1)
