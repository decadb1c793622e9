"""Creates over a small fleet, and the words of their outcomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from orchestrator.operations.execution import Result
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Problem
from tests.placement.fleet import create_all, working


def run(url: str, *lists: Sequence[Create]) -> list[Result]:
    """Send the lists at once, each as one transaction, and answer all results."""

    async def send() -> list[Result]:
        async with working(url, pool_size=len(lists) + 2) as (context, catalogue):
            found = await asyncio.gather(*(create_all(context, catalogue, one) for one in lists))
            return [result for results in found for result in results]

    return asyncio.run(send())


def body_of(result: Result) -> dict[str, Any]:
    """The answer's JSON."""
    assert isinstance(result, Answer), result
    body: dict[str, Any] = json.loads(result.body)
    return body


def word_of(result: Result) -> str:
    """201, or why not."""
    if isinstance(result, Problem):
        return result.code
    body = body_of(result)
    return str(body.get("reason", body.get("code", result.status)))
