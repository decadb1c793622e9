"""An agent that resets a GPU, to be killed meanwhile: `python -m tests.discovery.gpu_resets.killed ROOT INDEX`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from node_agent.gpu_reset.gpu_reset import GpuReset
from node_agent.wire.gpu_reset import GpuResetParameters
from tests.discovery.trees import GPU_ADDRESSES


async def _none() -> frozenset[int]:
    return frozenset()


if __name__ == "__main__":
    order = GpuResetParameters(slots=[0], gpus=[GPU_ADDRESSES[int(sys.argv[2])]])
    asyncio.run(GpuReset("libvirt", Path(sys.argv[1]), dict(os.environ)).run(order, 600.0, _none))
