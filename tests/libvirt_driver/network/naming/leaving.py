"""The names of a guest that has leased its address and is released. Prints JSON."""

from __future__ import annotations

import asyncio
import json

from node_agent.drivers.libvirt.network.links import links
from tests.libvirt_driver.network.naming.answers import DB, GATEWAY, staged_node
from tests.libvirt_driver.network.naming.asking import leased, resolved


async def main() -> None:
    """Print the answers before and after, and whether a guest that stays is leased its address again."""
    with staged_node() as (node, _):
        await node.networks.start()
        found: list[object] = [leased("a2", DB).get("address")]
        found += [resolved("a1", name, GATEWAY)["code"] for name in (*DB.names, "web")]
        await node.networks.take_out(DB.allocation_id)
        node.guests.remove(DB)
        found += [resolved("a1", name, GATEWAY)["code"] for name in (*DB.names, "web")]
        found.append(leased("a1", node.guests[0]).get("address"))
        # It cannot be removed as a directory of files.
        (node.directory / "1-99").touch()
        web = node.guests[0]
        await node.networks.take_out(web.allocation_id)
        found.append(sorted({web.tap, web.bridge} & set(links())))
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(main())
