"""Two tenants on one node: what passes and what does not, each with its control without the rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.frames import frames
from tests.libvirt_driver.network.stage import INTERNET, UPLINK, staged
from tests.libvirt_driver.network.verdicts import (
    BETWEEN_NETWORKS,
    CONNECTIONS,
    HAIRPIN,
    OTHER_TENANT,
    PUBLISHED,
    SAME_TENANT,
    UNPUBLISHED,
)

PASSING = {
    SAME_TENANT: "a2 10.66.1.11",
    "guest to its own address": "a1 10.66.1.11",
    PUBLISHED: f"a1 {INTERNET}",
    "internet to another published port": f"b1 {INTERNET}",
    "node to a published port": f"a1 {UPLINK}",
    "internet to the node": f"node {INTERNET}",
}
# Without the rules nothing is published: `test_each_line_that_keeps_tenants_apart_does_so_alone` and the one after it
# are the controls of these.
WITHOUT_CONTROL = {HAIRPIN, UNPUBLISHED}
DROPPED = sorted(set(CONNECTIONS) - set(PASSING))


@pytest.fixture(scope="module")
def verdicts() -> Any:
    """The verdicts of one run."""
    return staged("tests.libvirt_driver.network.verdicts")


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("setting", ["rules", "bridge netfilter", "egress", "names"])
def test_what_passes(verdicts: Any, setting: str, name: str) -> None:
    assert verdicts[setting][name] == PASSING[name]


@pytest.mark.parametrize("name", DROPPED)
def test_what_does_not_pass_and_would_without_the_rules(verdicts: Any, name: str) -> None:
    assert [verdicts[setting][name] for setting in ("rules", "bridge netfilter", "names")] == ["", "", ""]
    assert bool(verdicts["no rules"][name]) is (name not in WITHOUT_CONTROL)


@pytest.mark.parametrize("kept", BETWEEN_NETWORKS)
def test_each_line_that_keeps_tenants_apart_does_so_alone(verdicts: Any, kept: str) -> None:
    assert verdicts["controls"][f"hairpin, {kept}"] == ""
    assert verdicts["controls"]["hairpin, None"] == "b1 10.66.1.11", "without any of the lines"


def test_a_line_that_is_left_out_lets_through_what_it_drops(verdicts: Any) -> None:
    controls = verdicts["controls"]
    assert controls["published"] == f"a1 {INTERNET}", "a port that is published is reached"
    assert controls["node"] == "node 10.66.1.11"
    assert controls["guest"] == f"a1 {INTERNET}"
    assert controls["bridges"] == "", "with br_netfilter guests of one network need theirs"


def test_egress_is_a_setting_and_opens_nothing_else(verdicts: Any) -> None:
    outbound = "guest to the internet"
    assert verdicts["egress"][outbound] == f"internet {UPLINK}", "with the node's address as source"
    assert {name: said for name, said in verdicts["egress"].items() if name != outbound} == {
        name: PASSING.get(name, "") for name in CONNECTIONS if name != outbound
    }


@pytest.mark.parametrize("name", [one.name for one in frames()])
def test_a_forged_frame_reaches_no_neighbour_and_would_without_the_rules(verdicts: Any, name: str) -> None:
    assert (name in verdicts["frames, rules"]) is name.startswith("honest")
    assert (name in verdicts["frames, names"]) is name.startswith("honest")
    assert name in verdicts["frames, no rules"]


def test_rules_that_were_flushed_are_restored(verdicts: Any) -> None:
    assert verdicts["restored"] is True
    assert verdicts["after"] == {SAME_TENANT: PASSING[SAME_TENANT], OTHER_TENANT: "", PUBLISHED: PASSING[PUBLISHED]}


def test_a_guest_that_leaves_takes_nothing_from_the_others(verdicts: Any) -> None:
    assert verdicts["without a2"] == {SAME_TENANT: "", OTHER_TENANT: "", PUBLISHED: PASSING[PUBLISHED]}
