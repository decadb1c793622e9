"""Makes the consumer of the log from which a tenant's user of NATS takes events: `python nats_tenant_consumer.py TENANT_ID`.

It connects as `operator` with BERTH_NATS_URL and BERTH_NATS_CA_FILE. Safe to repeat; needed again after `berth events rebuild`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from uuid import UUID

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from berth.process.nats_connections import nats_options

STREAM = "BERTH_LOG"
UNACKNOWLEDGED_MAX = 1_000


async def main(tenant: UUID) -> None:
    """Make the consumer, with a filter of the tenant's subjects."""
    ca_file = os.environ.get("BERTH_NATS_CA_FILE")
    options = nats_options(os.environ["BERTH_NATS_URL"], "berth-tenants", None if ca_file is None else Path(ca_file))
    client = await nats.connect(**options, allow_reconnect=False)
    try:
        config = ConsumerConfig(
            durable_name=f"tenant-{tenant}", filter_subject=f"berth.events.{tenant}.>", ack_policy=AckPolicy.EXPLICIT,
            max_ack_pending=UNACKNOWLEDGED_MAX,
        )  # fmt: skip
        await client.jetstream().add_consumer(STREAM, config)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(UUID(sys.argv[1])))
