"""Which GPUs are reset together, and which report proves a reset."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.wire.topology import Topology
from orchestrator.nodes.gpu_resets.rules import GpuResetOutcome, group_of, judge, touched
from tests.discovery.topologies import gpu, topology
from tests.discovery.trees import GPU_ADDRESSES
from tests.nodes.gpu_resets.running import results

LOST: dict[str, Any] = {"model": None, "uuid": None, "serial": None, "nvlinks": None, "nvlinks_up": None, "lost": True}
PCIE: dict[str, Any] = {"nvlinks": None, "nvlinks_up": None}
PASSED_THROUGH: dict[str, Any] = {**LOST, "lost": False, "driver": "vfio-pci"}


def with_gpus(*changes: dict[str, Any]) -> Topology:
    return topology(gpus=[gpu(index, **change) for index, change in enumerate(changes)])


@pytest.mark.parametrize(
    ("found", "approved", "slots"),
    [
        (with_gpus({}, {}, {}), None, (0, 1, 2)),
        (with_gpus(PCIE, PCIE, PCIE), None, (1,)),
        (with_gpus({}, PASSED_THROUGH, {}), None, (1,)),
        (with_gpus(PASSED_THROUGH, {}, {}), None, (1, 2)),
        (with_gpus({}, LOST, {}), None, (0, 1, 2)),
        (with_gpus({}, {}, LOST), None, (0, 1, 2)),
        (with_gpus(PCIE, LOST, PCIE), None, (1,)),
        (with_gpus(LOST, LOST, LOST), None, (1,)),
        (with_gpus(LOST, LOST, LOST), with_gpus({}, {}, {}), (0, 1, 2)),
        (with_gpus(PASSED_THROUGH, PASSED_THROUGH, PASSED_THROUGH), with_gpus({}, {}, {}), (1,)),
        (with_gpus({}, {}), with_gpus({}, {}, {}), (0, 1, 2)),
    ],
    ids=["linked", "pcie", "passed through", "beside one passed through", "lost", "beside a lost one", "lost among pcie",
         "all lost", "all lost now", "now passed through", "one missing now"],
)  # fmt: skip
def test_what_is_reset_together(found: Topology, approved: Topology | None, slots: tuple[int, ...]) -> None:
    group = group_of(found, approved, 3, 1)
    assert group is not None
    assert (group.slots, group.gpus) == (slots, tuple(GPU_ADDRESSES[slot] for slot in slots))


def test_without_a_gpu_for_each_slot_nothing_is() -> None:
    assert group_of(with_gpus({}, {}), None, 3, 1) is None
    assert group_of(topology(gpus=None), None, 3, 1) is None
    assert group_of(with_gpus({}, {}), None, 2, 2) is None


def test_the_serial_number_that_was_approved_counts() -> None:
    group = group_of(with_gpus({"serial": "new"}), with_gpus({"serial": "old"}), 1, 0)
    assert group is not None
    assert dict(group.serials) == {GPU_ADDRESSES[0]: "old"}


@pytest.mark.parametrize(
    ("found", "approved", "why"),
    [
        (with_gpus(PCIE, PCIE), with_gpus(PCIE, PCIE), None),
        (with_gpus(PCIE, {**PCIE, "serial": "9"}), None, None),
        (with_gpus({**PCIE, "serial": "9"}, PCIE), with_gpus(PCIE, PCIE), None),
        (with_gpus(PCIE, {**PCIE, "serial": None, "model": None}), with_gpus(PCIE, PCIE), None),
        (with_gpus(PCIE, {**PCIE, "serial": "9"}), with_gpus(PCIE, PCIE),
         f"the serial number at {GPU_ADDRESSES[1]} is 9, and 1651 was approved"),
        (with_gpus(PCIE, {**PCIE, "serial": None, "model": "B"}), with_gpus(PCIE, {**PCIE, "model": "A"}),
         f"the model at {GPU_ADDRESSES[1]} is B, and A was approved"),
        (with_gpus(PCIE), with_gpus(PCIE, PCIE), f"the topology found last has no GPU at {GPU_ADDRESSES[1]}"),
    ],
    ids=["same", "not approved yet", "beside it", "not answered", "serial", "model", "gone"],
)  # fmt: skip
def test_another_gpu_at_the_address_is_named(found: Topology, approved: Topology | None, why: str | None) -> None:
    group = group_of(found, approved, 2, 1)
    assert group is not None
    assert (group.slots, group.changed) == ((1,), why)


def test_only_a_report_about_every_gpu_proves_a_reset() -> None:
    two = [GPU_ADDRESSES[3], GPU_ADDRESSES[4]]
    assert judge(results([3, 4]), two, {}) == (GpuResetOutcome.RESET, None)
    assert judge(results([3, 4], serial="s"), two, {two[1]: "s"}) == (GpuResetOutcome.RESET, None)
    for report in (results([3]), results([3, 4], outcome="gpu_reset_failed"), results([3, 4], serial="t")):
        outcome, why = judge(report, two, {two[1]: "s"})
        assert (outcome, why is not None and two[1] in why) == (GpuResetOutcome.FAILED, True)


def test_the_gpu_that_kept_others_from_being_reset_is_named() -> None:
    report = results([3, 4], outcome="gpu_in_use", evidence="e")
    left_out = report.gpus[0].model_copy(update={"outcome": "gpu_reset_left_out"})
    report = report.model_copy(update={"gpus": [left_out, report.gpus[1]]})
    assert judge(report, [GPU_ADDRESSES[3], GPU_ADDRESSES[4]], {}) == (
        GpuResetOutcome.FAILED, f"gpu_in_use: {GPU_ADDRESSES[4]}: e (and 1 more)",
    )  # fmt: skip
    assert not touched(report)
    assert touched(results([3]))
