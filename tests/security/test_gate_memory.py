"""The gate's memory is bounded in bytes, whatever the size of its responses."""

from __future__ import annotations

import asyncio
import tracemalloc
import uuid

import pytest

from orchestrator.edge.gate import BODY_LENGTH_MAX, Gate
from orchestrator.operations.gate_settings import GateSettings
from orchestrator.operations.store.operations import Answer, Operation

BYTES_MAX = 4 * 1024 * 1024
RESPONSES = 3_000


@pytest.mark.parametrize("length", [2, 15_600, BODY_LENGTH_MAX], ids=["small", "as attacked", "largest"])
def test_thousands_of_responses_take_no_more_than_the_bound(length: int) -> None:
    """Whole, 3,000 responses of 15.6 KB take 45 MiB. Wide characters take four bytes each."""

    async def scene() -> int:
        gate = Gate(GateSettings(max_bytes=BYTES_MAX))
        tenant = uuid.uuid4()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(RESPONSES):
            operation = Operation(tenant, f"{number:0255}", uuid.uuid4().bytes * 2, 86_400.0)

            async def run() -> Answer:
                return Answer(201, "\U0001f680" * (length // 4) + "x" * (length - length // 4), kept_seconds=86_400.0)

            await gate.answer(operation, run)
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        grown = asyncio.run(scene())
    finally:
        tracemalloc.stop()
    assert grown <= 1.1 * BYTES_MAX
    assert grown > BYTES_MAX // 4, "the gate does remember"
