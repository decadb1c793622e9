"""Network policies let through what processes need, as the networks of deploy/compose.yaml do, and nothing else."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.deploy.deployment import services
from tests.deploy.kubernetes.kustomization import Resource
from tests.deploy.kubernetes.manifests import OVERLAYS, kept_running, labels, of_kind, workloads
from worker.webhooks.settings import WebhookSettings

Labels = dict[str, str]

SERVERS: dict[str, tuple[Labels, int]] = {
    "postgres": ({"cnpg.io/cluster": "berth-postgres"}, 5432),
    "nats": ({"app.kubernetes.io/name": "nats"}, 4222),
    "temporal": ({"app.kubernetes.io/name": "temporal", "app.kubernetes.io/component": "frontend"}, 7233),
    "orchestrator-public": ({"app.kubernetes.io/name": "orchestrator-public", "app.kubernetes.io/part-of": "berth"}, 8080),
}  # fmt: skip
"""The labels of the pods of each server of Compose, and its port."""


NETWORK_OF = {"postgres": "database", "nats": "log", "temporal": "workflows", "orchestrator-public": "api"}
"""The network of Compose by which others reach a server."""


@dataclass(frozen=True)
class End:
    """One end of a connection: a pod, by the name of its namespace and its labels."""

    namespace: str
    labels: Labels


def matches(selector: Any, found: Labels) -> bool:
    """Whether a selector of labels selects; an empty one selects all."""
    assert selector.keys() <= {"matchLabels"}
    return bool(selector.get("matchLabels", {}).items() <= found.items())


def is_peer(peer: Any, end: End) -> bool:
    """Whether a peer of a rule is this pod. An address block is no pod."""
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": end.namespace}):
            return False
    elif end.namespace != "berth":
        return False
    return matches(peer.get("podSelector", {}), end.labels)


def passes(policies: list[Resource], source: End, destination: End, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection between two pods passes, as the API defines it: both ends must let it through."""
    return all(
        _passes_at(policies, end, other, port, protocol, direction)
        for end, other, direction in ((source, destination, "egress"), (destination, source, "ingress"))
    )


def _passes_at(policies: list[Resource], end: End, other: End, port: int, protocol: str, direction: str) -> bool:
    if end.namespace != "berth":
        return True
    mine = [
        one["spec"]
        for one in policies
        if direction.capitalize() in one["spec"]["policyTypes"] and matches(one["spec"]["podSelector"], end.labels)
    ]
    if not mine:
        return True
    member = "to" if direction == "egress" else "from"
    return any(
        (member not in rule or any(is_peer(peer, other) for peer in rule[member]))
        and ("ports" not in rule or any((one["protocol"], one["port"]) == (protocol, port) for one in rule["ports"]))
        for spec in mine
        for rule in spec.get(direction, ())
    )


def policies_of(folder: str) -> list[Resource]:
    """Every network policy of an overlay."""
    return list(of_kind(folder, "NetworkPolicy").values())


def pod_of(folder: str, name: str) -> End:
    """A pod of a workload."""
    return End("berth", labels(workloads(folder)[name]))


ALL = [(folder, name) for folder in OVERLAYS for name in workloads(folder)]


@pytest.mark.parametrize(("folder", "name"), ALL)
def test_a_pod_reaches_the_servers_of_the_networks_of_its_service_and_no_others(folder: str, name: str) -> None:
    mine = set(services()[name]["networks"])
    for server, (found, port) in SERVERS.items():
        if server == name:
            continue
        reached = passes(policies_of(folder), pod_of(folder, name), End("berth", found), port)
        assert reached is (NETWORK_OF[server] in mine), server


@pytest.mark.parametrize(("folder", "name"), ALL)
def test_a_pod_asks_for_names_and_reaches_nothing_else_in_the_cluster(folder: str, name: str) -> None:
    policies, pod = policies_of(folder), pod_of(folder, name)
    for protocol in ("UDP", "TCP"):
        assert passes(policies, pod, End("kube-system", {"k8s-app": "kube-dns"}), 53, protocol)
    assert not passes(policies, pod, End("kube-system", {"k8s-app": "kube-apiserver"}), 443)
    assert not passes(policies, pod, End("elsewhere", {}), 443)
    for found, port in SERVERS.values():
        assert not passes(policies, pod, End("berth", found), port + 1)
        assert not passes(policies, pod, End("berth", {"app": "stranger"}), port)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_no_pod_without_a_label_reaches_a_server_or_a_process(folder: str) -> None:
    policies = policies_of(folder)
    for stranger in (
        End("berth", {"app": "stranger"}),
        End("elsewhere", {"berth/database": "true", "berth/log": "true"}),
    ):
        for found, port in SERVERS.values():
            assert not passes(policies, stranger, End("berth", found), port)
        for name in kept_running(folder):
            assert not passes(policies, stranger, pod_of(folder, name), 9100)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_only_the_listeners_are_reachable_from_elsewhere(folder: str) -> None:
    policies, ingress = policies_of(folder), End("ingress-nginx", {})
    reachable = {
        (name, port)
        for name in kept_running(folder)
        for port in (8080, 8443, 8444, 9100)
        if passes(policies, End("elsewhere", {}), pod_of(folder, name), port)
    }
    assert reachable == {("orchestrator-public", 8444), ("orchestrator-node", 8443)}, "both by mTLS"
    assert passes(policies, ingress, pod_of(folder, "orchestrator-public"), 8080)
    assert not passes(policies, ingress, pod_of(folder, "orchestrator-node"), 9100)
    for name in kept_running(folder):
        assert passes(policies, End("monitoring", {}), pod_of(folder, name), 9100)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_servers_reach_their_own_kind(folder: str) -> None:
    policies = policies_of(folder)
    postgres, nats, temporal = (End("berth", SERVERS[name][0]) for name in ("postgres", "nats", "temporal"))
    history = End("berth", {"app.kubernetes.io/name": "temporal", "app.kubernetes.io/component": "history"})
    for source, destination, port in (
        (postgres, postgres, 5432), (postgres, postgres, 8000), (End("cnpg-system", {}), postgres, 8000),
        (nats, nats, 6222), (temporal, history, 7234), (history, temporal, 7233), (temporal, postgres, 5432),
    ):  # fmt: skip
        assert passes(policies, source, destination, port), (source, destination, port)
    assert not passes(policies, nats, postgres, 5432)
    assert not passes(policies, temporal, nats, 4222)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_only_the_webhook_sender_reaches_the_internet_and_no_private_address(folder: str) -> None:
    found = {name: one["spec"] for name, one in of_kind(folder, "NetworkPolicy").items() if "ipBlock" in str(one)}
    assert found.keys() == {"outside"}
    selected = {
        name for name, one in workloads(folder).items() if matches(found["outside"]["podSelector"], labels(one))
    }
    assert selected == {"webhooks"}
    (rule,) = found["outside"]["egress"]
    assert {one["port"] for one in rule["ports"]} == set(WebhookSettings.model_fields["webhook_ports"].default)
    blocks = [peer["ipBlock"] for peer in rule["to"]]
    for address, reached in (
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("10.96.0.1", False), ("169.254.169.254", False),
        ("172.20.0.1", False), ("192.168.1.1", False), ("100.64.0.1", False), ("127.0.0.1", False), ("::1", False),
        ("fd00::1", False), ("fe80::1", False),
    ):  # fmt: skip
        inside = [block for block in blocks if _contains(block["cidr"], address)]
        assert any(not any(_contains(one, address) for one in block["except"]) for block in inside) is reached, address


def _contains(network: str, address: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)
