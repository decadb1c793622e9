"""Runs a coroutine of a test within a bound, and lists the commands that a stub received."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.support.bmc.server import Stub

_Result = TypeVar("_Result")


def run(scene: Coroutine[Any, Any, _Result], seconds: float = 60) -> _Result:
    """The result of `scene`. Raises TimeoutError after `seconds`, so that a client that waits without a bound fails."""
    return asyncio.run(asyncio.wait_for(scene, seconds))


def commands(stub: Stub) -> list[str]:
    """Commands that reached the BMC, by their last word."""
    lines = (line for line in stub.service.requests if not line.startswith(("GET", "DELETE")))
    return [line.rpartition("/")[2].rpartition(".")[2] for line in lines if not line.endswith("Sessions")]
