"""What is judged of a machine that runs already: by rules alone, for any node, any description and any statement."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.nodes.states import NodeState
from orchestrator.placement.inventory import Sku
from orchestrator.problems import InvalidState
from orchestrator.sites.adopting.rules import (
    ADOPTABLE,
    ALWAYS,
    LOOK_SECONDS_MAX,
    Candidate,
    Gap,
    Look,
    Stated,
    gaps_of,
    machine_uuid,
    require_candidate,
    require_fit,
    require_running,
)
from orchestrator.sites.refusals import NotAdoptable

NOW = datetime(2026, 11, 29, tzinfo=UTC)
UUIDS = [UUID(int=1), UUID(int=2)]
MAC = "02:00:00:00:00:01"
SKU = Sku("h200.metal", "baremetal", "H200", frozenset({8}), None, 1, active=True, row_version=1)
NODE = Candidate(NodeState.CORDONED, "baremetal", "H200", 8, 0, has_agent=False, is_awaited=False)

candidates = st.builds(
    Candidate, st.sampled_from(NodeState), st.sampled_from(["baremetal", "gpu_slice"]), st.sampled_from(["H200", "B200"]),
    st.sampled_from([0, 4, 8]), st.integers(0, 2), st.booleans(), st.booleans(),
)  # fmt: skip
skus = st.builds(
    Sku, st.just("s"), st.sampled_from(["baremetal", "gpu_slice"]), st.sampled_from(["H200", "B200"]),
    st.frozensets(st.sampled_from([4, 8])), st.none(), st.just(1), st.booleans(), st.just(1),
)  # fmt: skip
texts = st.sampled_from(["", "-", "x", str(UUIDS[0]), str(UUIDS[0]).upper(), str(UUIDS[1])])
inventories = st.none() | st.fixed_dictionaries(
    {}, optional={"uuid": texts, "serial": st.sampled_from(["", "S"]), "nics": st.lists(st.fixed_dictionaries(
        {"mac": st.sampled_from([MAC, MAC.upper(), "", "zz"])}), max_size=2)},
)  # fmt: skip
looks = st.builds(
    Look, st.sampled_from([None, "On", "Off", "PoweringOn"]), inventories,
    st.none() | st.integers(0, 2_000).map(lambda seconds: NOW - timedelta(seconds=seconds)),
    st.sampled_from([None, "bmc_unreachable"]),
)  # fmt: skip
statements = st.builds(Stated, st.none() | st.sampled_from(UUIDS), st.sampled_from([None, "S", "T"]), st.just(MAC))


def refusal(work: Any, *values: Any) -> str | None:
    """The reason for which it is refused; None if it is not."""
    try:
        work(*values)
    except InvalidState:
        return "state"
    except NotAdoptable as found:
        return str(found.extra["reason"])
    return None


@given(candidates)
def test_only_a_whole_unused_node_without_an_agent_is_a_candidate(node: Candidate) -> None:
    expected = (
        node.state in ADOPTABLE
        and not node.has_agent
        and not node.is_awaited
        and node.slot_count > 0
        and node.slots_out == 0
    )
    assert (refusal(require_candidate, node) is None) is expected
    assert (refusal(require_candidate, node) == "state") is (node.state not in ADOPTABLE)


@given(candidates, skus)
def test_only_a_sku_for_the_whole_node_fits(node: Candidate, sku: Sku) -> None:
    expected = (
        sku.active and sku.shape == node.shape == "baremetal" and sku.gpu_model == node.gpu_model
        and node.slot_count in sku.allowed_counts
    )  # fmt: skip
    assert (refusal(require_fit, node, sku) is None) is expected


@pytest.mark.parametrize(
    "sku",
    [
        replace(SKU, allowed_counts=frozenset({4})), replace(SKU, allowed_counts=frozenset()), replace(SKU, active=False),
        replace(SKU, gpu_model="B200"), replace(SKU, shape="gpu_slice"),
    ],
)  # fmt: skip
def test_a_sku_for_anything_else_does_not_fit(sku: Sku) -> None:
    assert refusal(require_fit, NODE, sku) == "sku_does_not_fit"


@given(looks)
def test_only_a_fresh_description_of_a_machine_that_is_on_counts(look: Look) -> None:
    expected = (
        look.looked_at is not None and look.inventory is not None and look.silent_because is None
        and (NOW - look.looked_at).total_seconds() <= LOOK_SECONDS_MAX and look.power_state == "On"
    )  # fmt: skip
    assert (refusal(require_running, look, NOW) is None) is expected


@pytest.mark.parametrize(("seconds", "reason"), [(LOOK_SECONDS_MAX, None), (LOOK_SECONDS_MAX + 1, "look_outdated")])
def test_the_bound_of_a_description(seconds: float, reason: str | None) -> None:
    look = Look("On", {}, NOW - timedelta(seconds=seconds), None)
    assert refusal(require_running, look, NOW) == reason


@given(looks, statements, st.none() | st.sampled_from(UUIDS))
def test_all_that_name_the_machine_name_one(look: Look, stated: Stated, inspected: UUID | None) -> None:
    reported = str((look.inventory or {}).get("uuid", "")).lower()
    named = {one for one in (stated.smbios_uuid, inspected) if one is not None}
    named |= {one for one in UUIDS if str(one) == reported}
    serial = str((look.inventory or {}).get("serial", ""))
    if len(named) == 1 and stated.serial in (None, serial):
        assert machine_uuid(look, stated, inspected) in named
        return
    reason = refusal(machine_uuid, look, stated, inspected)
    assert reason == ("machine_unknown" if not named else "other_machine")


@given(looks, statements)
def test_what_was_not_seen_is_named(look: Look, stated: Stated) -> None:
    inventory = look.inventory or {}
    found = gaps_of(look, stated)
    assert found[: len(ALWAYS)] == list(ALWAYS)
    assert len(set(found)) == len(found)
    assert (Gap.SERIAL in found) is not bool(inventory.get("serial"))
    assert (Gap.UUID in found) is (str(inventory.get("uuid", "")).lower() not in map(str, UUIDS))
    assert (Gap.NETWORK_PORT in found) is (MAC not in {nic["mac"].lower() for nic in inventory.get("nics", [])})


def test_the_first_reason_is_that_of_the_state() -> None:
    assert refusal(require_candidate, replace(NODE, state=NodeState.ACTIVE, has_agent=True)) == "state"
    assert refusal(require_candidate, NODE) is None
    assert refusal(require_fit, NODE, SKU) is None
