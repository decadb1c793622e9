"""Whether the agent may switch IPv6 off on taps and bridges, and can serve names."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from node_agent.checks.finding import Code, Finding, Severity
from node_agent.checks.host import check_host, check_start
from node_agent.checks.networks import IPV6_SETTING, NetworkSettings, check_tenant_networks
from node_agent.checks.start import features_now
from node_agent.discovery.reading import Gaps, Tree
from node_agent.settings import Settings
from node_agent.wire.networks import NAMES_FEATURE, TENANT_NETWORK_FEATURE


def test_a_setting_that_can_be_written_is_fine_and_stays(tmp_path: Path) -> None:
    (tmp_path / IPV6_SETTING).parent.mkdir(parents=True)
    (tmp_path / IPV6_SETTING).write_text("0\n")
    assert check_tenant_networks(Tree(tmp_path, Gaps()), NetworkSettings(names=False))[-1].code is None
    assert (tmp_path / IPV6_SETTING).read_text() == "0\n"


def test_a_host_without_ipv6_is_fine(tmp_path: Path) -> None:
    assert check_tenant_networks(Tree(tmp_path, Gaps()), NetworkSettings(names=False))[-1].code is None


def test_a_closed_setting_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, _flags: int) -> int:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", closed)
    finding = check_tenant_networks(Tree(tmp_path, Gaps()), NetworkSettings(names=False))[-1]
    assert (finding.code, finding.severity) == (Code.IPV6_SETTING_CLOSED, Severity.WARNS)
    assert "Read-only file system" in finding.found


def with_programs(root: Path, *names: str) -> Tree:
    """A host with these programs."""
    (root / "usr/sbin").mkdir(parents=True)
    for name in names:
        (root / "usr/sbin" / name).touch()
    return Tree(root, Gaps())


@pytest.mark.parametrize("missing", ["dnsmasq", "setpriv"])
def test_a_host_that_cannot_serve_names_is_refused_with_the_remedy(tmp_path: Path, missing: str) -> None:
    tree = with_programs(tmp_path, *({"dnsmasq", "setpriv"} - {missing}))
    finding = next(one for one in check_tenant_networks(tree, NetworkSettings(names=True)) if one.name == "name server")
    assert (finding.code, finding.severity) == (Code.NAME_SERVER_MISSING, Severity.REFUSES)
    assert finding.lets_start, "guests that are there must be released"
    assert finding.found == f"{missing} is not installed"
    package = {"dnsmasq": "dnsmasq-base", "setpriv": "util-linux"}[missing]
    assert finding.remedy == (f"apt-get install --no-install-recommends {package}, or BERTH_LIBVIRT_NETWORK_NAMES=none")


def test_the_account_of_the_name_server_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = with_programs(tmp_path, "dnsmasq", "setpriv")
    accounts = {"dnsmasq": pwd.getpwuid(0)}
    monkeypatch.setattr(pwd, "getpwnam", accounts.__getitem__)
    assert (
        next(one for one in check_tenant_networks(tree, NetworkSettings(names=True)) if one.name == "name server").code
        is None
    )
    accounts.clear()
    finding = next(one for one in check_tenant_networks(tree, NetworkSettings(names=True)) if one.name == "name server")
    assert (finding.code, finding.found) == (Code.NAME_SERVER_MISSING, "the account dnsmasq is missing")


def test_an_agent_serves_names_as_soon_as_the_host_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {"dnsmasq": pwd.getpwuid(0)}.__getitem__)
    settings = Settings.model_validate(
        {
            "api_url": "x", "root_keys_file": tmp_path, "agent_state_dir": tmp_path, "agent_driver": "libvirt",
            "libvirt_network": "bridge",
        }
    )  # fmt: skip
    with_programs(tmp_path, "setpriv")
    assert features_now(settings, tmp_path) == (TENANT_NETWORK_FEATURE,)
    (tmp_path / "usr/sbin/dnsmasq").touch()
    assert features_now(settings, tmp_path) == (TENANT_NETWORK_FEATURE, NAMES_FEATURE)


def test_a_host_that_serves_no_names_needs_no_server(tmp_path: Path) -> None:
    assert "name server" not in {
        one.name for one in check_tenant_networks(with_programs(tmp_path), NetworkSettings(names=False))
    }
    networked = {
        names: {one.name for one in check_start(tmp_path, tmp_path, 64_500, tmp_path, NetworkSettings(names))}
        for names in (True, False)
    }
    assert networked[True] - networked[False] == {"name server"}


def trunk_of(root: Path, addresses: list[str], mtu: int = 1500) -> Finding:
    """What the check says of the interface eth1."""
    wanted = NetworkSettings(names=False, trunk="eth1", mtu=mtu)
    found = check_tenant_networks(Tree(root, Gaps()), wanted, lambda _: addresses)
    return next(one for one in found if one.name == "trunk of tenant networks")


def test_a_trunk_that_is_used_for_nothing_else_is_fine(tmp_path: Path) -> None:
    assert trunk_of(tmp_path, []).code is Code.TRUNK_INTERFACE_MISSING
    (tmp_path / "sys/class/net/eth1").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth1/mtu").write_text("1500\n")
    assert trunk_of(tmp_path, []).code is None
    (tmp_path / "sys/class/net/eth1/master").symlink_to("../berth-trunk")
    assert trunk_of(tmp_path, ["192.0.2.7"]).code is None, "the agent has it"


@pytest.mark.parametrize(
    ("master", "addresses", "mtu", "code", "words"),
    [
        ("br0", [], 1500, Code.TRUNK_INTERFACE_TAKEN, "eth1 is a port of br0"),
        (None, ["192.0.2.7"], 1500, Code.TRUNK_INTERFACE_TAKEN, "eth1 has the address 192.0.2.7"),
        (None, [], 9000, Code.TRUNK_MTU_TOO_SMALL, "an MTU of 1500, below the 9000"),
    ],
)
def test_a_trunk_that_cannot_be_used_is_named_with_the_remedy(
    tmp_path: Path, master: str | None, addresses: list[str], mtu: int, code: Code, words: str
) -> None:
    (tmp_path / "sys/class/net/eth1").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth1/mtu").write_text("1500\n")
    if master is not None:
        (tmp_path / "sys/class/net/eth1/master").symlink_to(f"../{master}")
    finding = trunk_of(tmp_path, addresses, mtu)
    assert (finding.code, finding.severity) == (code, Severity.REFUSES)
    assert finding.lets_start, "guests that are there must be released"
    assert words in finding.found
    assert "eth1" in finding.remedy or "BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE" in finding.remedy


def test_only_an_agent_with_vlans_checks_its_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "BERTH_AGENT_DRIVER": "libvirt",
        "BERTH_LIBVIRT_NETWORK": "bridge",
        "BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE": "absent0",
    }
    monkeypatch.setattr("node_agent.checks.host.check_libvirt", lambda _: Finding("libvirt", "not asked"))
    codes = {
        uplink: {one.code for one in check_host({**said, "BERTH_LIBVIRT_NETWORK_UPLINK": uplink})}
        for uplink in ("vlan", "vxlan")
    }
    assert codes["vlan"] - codes["vxlan"] == {Code.TRUNK_INTERFACE_MISSING}
