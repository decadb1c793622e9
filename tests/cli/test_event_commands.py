"""`berth events tail` and `show` from the API's feed, where no NATS is known."""

from __future__ import annotations

import json

from berth.client.feed.event_types import EVENT_TYPES
from orchestrator.log.events import EventType
from tests.api.calling import new_tenant
from tests.client.deployment import Deployment
from tests.log.streaming import leave
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]


def _versions(told: str) -> list[int]:
    return [json.loads(line)["version"] for line in told.splitlines()]


def test_events_of_the_feed_from_the_command_line(deployment: Deployment) -> None:
    tenant = new_tenant(deployment.admin)
    operator, own = Shell(deployment.address, deployment.admin.key), Shell(deployment.address, tenant.key)
    leave(deployment.database, tenant, 2)
    leave(deployment.database, None, 1, "node.offline")
    told = operator.run("events tail --no-follow --output json")
    assert told.exit_code == 0, told.output
    versions = _versions(told.stdout)
    assert versions == list(range(1, len(versions) + 1))
    mine = _versions(own.run("events tail --no-follow --output json").stdout)
    assert mine == _versions(operator.run(f"events tail --no-follow -o json --tenant {tenant.tenant_id}").stdout)
    assert mine == versions[-3:-1]
    offline = operator.run(f"events tail --no-follow --type node.offline --tenant operator --from {mine[0]}")
    (line,) = offline.stdout.splitlines()
    assert line.split()[0] == str(versions[-1])
    assert "node.offline" in line
    assert own.run(f"events show {mine[1]}").stdout.split()[0] == str(mine[1])
    assert json.loads(own.run(f"events show {mine[1]} -o json").stdout)["data"]["n"] == 2
    for shell, version in ((own, versions[-1]), (operator, versions[-1] + 1_000)):
        shell.refused(f"events show {version}", "not_found")
    assert operator.run(f"events tail --no-follow --from {versions[-1] + 1_000}").stdout == ""


def test_the_client_lists_every_event_type_of_the_server() -> None:
    assert tuple(EventType) == EVENT_TYPES
