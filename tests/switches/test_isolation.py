"""A machine's network on a real switch: where it is provisioned, of its tenant, and back, with probes from outside.

The site's agent reaches a tenant's machine on one routed path, by which the machine reaches nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from node_agent.switches.placing import PlacingTimes, place
from node_agent.wire.switches import Segment
from tests.switches.lab import ADDRESSES, MACHINE, MODES, PROVISIONING, TENANT_A, TENANT_B, Lab, laboratory, sh

TIMES = PlacingTimes(settle_seconds=5.0, poll_seconds=0.1)
GATEWAY = "gateway"
AGENT = "agent"
AGENT_ADDRESS = ADDRESSES[AGENT]
# The agent's side, the tenant's side, and what passes between them: SSH of the agent, and answers to it.
_GATEWAY = """
ip addr add 10.77.9.1/24 dev agent; ip link set agent up
ip addr add 10.77.0.254/32 dev tenant; ip link set tenant up; ip link set lo up
ip route add {machine}/32 dev tenant
echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/tenant/proxy_arp
nft add table inet path
nft add chain inet path forward '{{ type filter hook forward priority 0; policy drop; }}'
nft add rule inet path forward ct state established,related accept
nft add rule inet path forward iifname agent oifname tenant ip saddr {agent} tcp dport 22 accept
nft add chain inet path input '{{ type filter hook input priority 0; policy drop; }}'
"""


@pytest.fixture(scope="module", params=MODES)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with laboratory(request.param) as made:
        yield made


def moved(lab: Lab, vlan: int, fence: int) -> None:
    asyncio.run(place(lab.switch(), MACHINE, Segment(number=vlan), fence, lambda: None, TIMES))


def test_a_tenants_machine_reaches_neither_bmc_nor_deploy_server_nor_another_tenant(lab: Lab) -> None:
    moved(lab, PROVISIONING, 1)
    assert lab.reached() == {"deploy", "bmc"}, "the positive control before"
    assert lab.reaches("deploy", MACHINE)
    moved(lab, TENANT_A, 2)
    assert lab.reached() == {"a2"}, "the same tenant's machine, and nothing else"
    assert [host for host in ("deploy", "bmc", "b1") if lab.reaches(host, MACHINE)] == [], "nor is it reached"
    assert lab.reaches("a2", MACHINE)
    moved(lab, PROVISIONING, 3)
    assert lab.reached() == {"deploy", "bmc"}, "the positive control after"
    moved(lab, TENANT_B, 4)
    assert lab.reached() == {"b1"}, "the next tenant's machine does not reach the one before"


@pytest.fixture
def routed(lab: Lab) -> Iterator[Lab]:
    """The host of the agent, behind a gateway with an interface in the segment of tenant A."""
    agent, gateway = (lab.namespace(name) for name in (AGENT, GATEWAY))
    try:
        sh(
            f"ip netns add {agent}; ip netns add {gateway};"
            f" ip link add e0 netns {agent} type veth peer name agent netns {gateway};"
            f" ip link add {GATEWAY} netns {lab.name} type veth peer name tenant netns {gateway};"
            f" ip -n {lab.name} link set {GATEWAY} up"
        )
        lab.put(GATEWAY, TENANT_A)
        sh(f"ip link set lo up; ip addr add {AGENT_ADDRESS}/24 dev e0; ip link set e0 up", agent)
        sh("ip route add default via 10.77.9.1", agent)
        sh(_GATEWAY.format(machine=ADDRESSES[MACHINE], agent=AGENT_ADDRESS), gateway)
        # As a tenant's system has it from its configuration: everything else is behind its gateway.
        sh("ip route replace default via 10.77.0.254", lab.namespace(MACHINE))
        lab.serve(AGENT, AGENT)
        yield lab
    finally:
        sh(f"ip netns del {agent}; ip netns del {gateway}")


def test_the_agent_reaches_a_tenants_machine_by_one_path_that_the_machine_cannot_use(routed: Lab) -> None:
    moved(routed, TENANT_A, 10)
    assert routed.reaches(AGENT, MACHINE), "the host key of a deployment can be proven"
    assert not routed.reaches(MACHINE, AGENT)
    moved(routed, TENANT_B, 11)
    assert not routed.reaches(AGENT, MACHINE), "the path leads to one segment"
