"""Thresholds: what of a report is a fault, which slots it concerns, and what a return of a slot accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.wire.health import GpuHealth, HealthReport, MemoryController
from orchestrator.nodes.probes.rules import (
    REASON_LENGTH_MAX,
    Fault,
    FaultCause,
    Machine,
    faulty_slots,
    judge,
    reason_for,
    still_accepted,
)
from orchestrator.nodes.probes.thresholds import Thresholds, thresholds_for
from tests.allocations.seeding import SLOTS
from tests.discovery.probes.reports import disk, gpu, health, nic, plugin, xid
from tests.discovery.trees import GPU_ADDRESSES
from worker.settings import Settings

MACHINE = Machine(SLOTS, tuple(GPU_ADDRESSES))
EVERY = tuple(range(SLOTS))


def faults(
    report: HealthReport, previous: HealthReport | None = None, accepted: dict[str, int] | None = None, **limits: Any
) -> list[tuple[FaultCause, str, tuple[int, ...]]]:
    found = judge(report, previous, accepted or {}, Thresholds(**limits), MACHINE)
    return [(fault.cause, fault.subject, fault.slots) for fault in found]


OF_GPU_2: dict[FaultCause, dict[str, Any]] = {
    FaultCause.GPU_UNCORRECTED: {"ecc_uncorrected": 1},
    FaultCause.GPU_REMAP_PENDING: {"remap_pending": True},
    FaultCause.GPU_REMAP_FAILED: {"remap_failed": True},
    FaultCause.GPU_HOT: {"temperature_celsius": 87},
    FaultCause.GPU_THROTTLED: {"throttle_reasons": ["idle", "hardware_thermal"]},
}


@pytest.mark.parametrize("cause", OF_GPU_2, ids=str)
def test_a_fault_of_a_gpu_takes_its_slot(cause: FaultCause) -> None:
    assert faults(health(gpu(2, **OF_GPU_2[cause]))) == [(cause, GPU_ADDRESSES[2], (2,))]


def test_a_logged_error_of_the_driver_takes_its_slot_if_it_is_one_of_the_hardware() -> None:
    assert faults(health(xid(5, 79))) == [(FaultCause.GPU_XID, f"{GPU_ADDRESSES[5]} XID 79", (5,))]
    assert faults(health(xid(5, 31))) == [], "a page fault of a program"
    assert faults(health(xid(5, 31)), gpu_xids=(31,)) == [(FaultCause.GPU_XID, f"{GPU_ADDRESSES[5]} XID 31", (5,))]


OF_NODE: dict[FaultCause, dict[str, Any]] = {
    FaultCause.MEMORY_UNCORRECTED: {"memory": [MemoryController(name="x", corrected=0, uncorrected=1)]},
    FaultCause.DISK_FAILED: {"disks": [disk(name="x", passed=False)]},
    FaultCause.DISK_WARNING: {"disks": [disk(name="x", critical_warning=4)]},
    FaultCause.DISK_MEDIA_ERRORS: {"disks": [disk(name="x", media_errors=11)]},
    FaultCause.DISK_PENDING_SECTORS: {"disks": [disk(name="x", pending_sectors=11)]},
    FaultCause.PLUGIN: {"plugins": [plugin("fault", name="x")]},
}


@pytest.mark.parametrize("cause", OF_NODE, ids=str)
def test_a_fault_of_the_node_takes_every_slot(cause: FaultCause) -> None:
    assert faults(health(**OF_NODE[cause])) == [(cause, "x", EVERY)]


def test_a_disk_that_the_kernel_gave_up() -> None:
    assert faults(health(disks=[disk(passed=None, state="dead")])) == [(FaultCause.DISK_FAILED, "nvme0n1", EVERY)]
    assert faults(health(disks=[disk(percentage_used=250)])) == []
    worn = faults(health(disks=[disk(percentage_used=91)]), disk_percentage_used_max=90)
    assert worn == [(FaultCause.DISK_WORN, "nvme0n1", EVERY)]


def test_a_plugin_may_name_the_gpu() -> None:
    named = health(plugins=[plugin("fault", address=GPU_ADDRESSES[3])])
    assert faults(named) == [(FaultCause.PLUGIN, "fans", (3,))]
    assert faults(health(plugins=[plugin("unknown", failure="no answer within 30 s")])) == []


def test_a_gpu_of_no_known_slot_takes_none() -> None:
    stranger = GpuHealth(address="0000:ff:00.0", ecc_uncorrected=9)
    assert faults(health(stranger)) == [(FaultCause.GPU_UNCORRECTED, "0000:ff:00.0", ())]
    assert judge(health(gpu(2, remap_failed=True)), None, {}, Thresholds(), Machine(4, ()))[0].slots == ()
    assert (
        judge(health(gpu(2, remap_failed=True)), None, {}, Thresholds(), Machine(2, tuple(GPU_ADDRESSES)))[0].slots
        == ()
    )


def test_what_is_unknown_is_no_fault() -> None:
    empty = HealthReport(driver="sandbox")
    unread = HealthReport(
        driver="libvirt", memory=[MemoryController(name="mc0")], disks=[disk(passed=None, state=None, media_errors=None)],
        gpus=[GpuHealth(address=address) for address in GPU_ADDRESSES], nics=[nic(carrier=None, receive_errors=None)],
        plugins=[plugin("unknown")],
    )  # fmt: skip
    assert (
        faults(empty) == faults(unread) == faults(unread, previous=health()) == faults(health(), previous=empty) == []
    )


PER_PROBE: dict[FaultCause, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    FaultCause.MEMORY_CORRECTED: (
        {"memory": [MemoryController(name="mc0", corrected=5, uncorrected=0)]},
        {"memory": [MemoryController(name="mc0", corrected=10_006, uncorrected=0)]},
        EVERY,
    ),
    FaultCause.NIC_ERRORS: (
        {"nics": [nic(receive_errors=1)]},
        {"nics": [nic(receive_errors=5_001, transmit_errors=5_001)]},
        EVERY,
    ),
    FaultCause.NIC_CARRIER_LOST: ({"nics": [nic(carrier_losses=3)]}, {"nics": [nic(carrier_losses=14)]}, EVERY),
}


@pytest.mark.parametrize("cause", PER_PROBE, ids=str)
def test_an_increase_between_two_reports(cause: FaultCause) -> None:
    before, now, slots = PER_PROBE[cause]
    assert [found[::2] for found in faults(health(**now), health(**before))] == [(cause, slots)]
    assert faults(health(**now)) == [], "nothing to compare with"
    assert faults(health(**now), health(**now)) == []
    assert faults(health(**before), health(**now)) == [], "it began again at zero"


def test_errors_of_links_are_those_of_the_gpu() -> None:
    now, before = health(gpu(4, nvlink_errors=1_500)), health(gpu(4, nvlink_errors=499))
    assert faults(now, before) == [(FaultCause.NVLINK_ERRORS, GPU_ADDRESSES[4], (4,))]
    assert faults(now, health(gpu(4, nvlink_errors=500))) == []
    assert faults(now, health(gpu(4, nvlink_errors=9_000))) == [(FaultCause.NVLINK_ERRORS, GPU_ADDRESSES[4], (4,))]


def test_an_accepted_count_is_no_fault_until_it_is_exceeded() -> None:
    limits = Thresholds()
    three, four = health(gpu(2, ecc_uncorrected=3)), health(gpu(2, ecc_uncorrected=4))
    first = judge(three, None, {}, limits, MACHINE)
    accepted = {fault.counter: fault.count or 0 for fault in first}
    assert accepted == {f"gpu_uncorrected:{GPU_ADDRESSES[2]}": 3}
    assert faults(three, accepted=accepted) == []
    assert faults(four, accepted=accepted) == [(FaultCause.GPU_UNCORRECTED, GPU_ADDRESSES[2], (2,))]
    assert still_accepted(three, accepted, limits, MACHINE) == accepted
    unread = health(GpuHealth(address=GPU_ADDRESSES[2]))
    assert still_accepted(unread, accepted, limits, MACHINE) == accepted, "unknown is no reset"
    after = still_accepted(health(gpu(2, ecc_uncorrected=1)), accepted, limits, MACHINE)
    assert after == {f"gpu_uncorrected:{GPU_ADDRESSES[2]}": 1}, "it began again"
    assert still_accepted(health(), accepted, limits, MACHINE) == {}


def test_a_state_is_never_accepted() -> None:
    found = judge(health(gpu(2, remap_failed=True), disks=[disk(passed=False)]), None, {}, Thresholds(), MACHINE)
    assert [fault.count for fault in found] == [None, None]


def test_thresholds_of_a_model_go_before_those_of_every_model() -> None:
    overrides = {
        "*": Thresholds(gpu_uncorrected_max=1, disk_media_errors_max=None), "H100-80GB": Thresholds(gpu_uncorrected_max=2),
    }  # fmt: skip
    assert thresholds_for(overrides, "B200") == Thresholds(gpu_uncorrected_max=1, disk_media_errors_max=None)
    assert thresholds_for(overrides, "H100-80GB") == Thresholds(gpu_uncorrected_max=2, disk_media_errors_max=None)
    assert thresholds_for({}, "B200") == Thresholds()
    assert faults(health(gpu(2, ecc_uncorrected=2)), gpu_uncorrected_max=2) == []
    assert faults(health(gpu(2, ecc_uncorrected=2)), gpu_uncorrected_max=None) == []


def test_the_setting_is_checked_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("DATABASE_URL", "postgresql://u@localhost/d"), ("NATS_URL", "nats://localhost"), ("TEMPORAL_ADDRESS", "localhost:1"),
        ("TASK_SIGNING_KEY_FILE", "/k"), ("TEMPORAL_PAYLOAD_KEY_FILE", "/k"),
        ("PROBE_THRESHOLDS", '{"H100-80GB": {"gpu_uncorrected_max": 3}}'),
    ):  # fmt: skip
        monkeypatch.setenv(f"BERTH_{name}", value)
    assert Settings().probe_thresholds == {"H100-80GB": Thresholds(gpu_uncorrected_max=3)}
    for wrong in (
        '{"*": {"gpu_uncorected_max": 3}}',
        '{"*": {"gpu_uncorrected_max": -1}}',
        '{"*": {"gpu_uncorrected_max": true}}',
    ):
        monkeypatch.setenv("BERTH_PROBE_THRESHOLDS", wrong)
        with pytest.raises(ValidationError, match="probe_thresholds"):
            Settings()


def test_the_reason_is_one_bounded_sentence() -> None:
    found = [
        Fault(FaultCause.PLUGIN, "fans", "x" * 1000, "healthy", (1, 2)),
        Fault(FaultCause.GPU_HOT, "0000:0f:00.0", "90 C", "below 87 C", (1,)),
    ]  # fmt: skip
    assert reason_for(1, found) == f"plugin of fans: {'x' * 1000}"[:REASON_LENGTH_MAX] + " (and 1 more)"
    assert reason_for(2, found).endswith("x")
    assert faulty_slots(found) == [1, 2]


COUNTS = st.none() | st.integers(0, 2**53 - 1)


@given(now=COUNTS, before=COUNTS, accepted=st.integers(0, 2**53 - 1))
def test_slots_are_always_those_of_the_node(now: int | None, before: int | None, accepted: int) -> None:
    """Whatever a node reports, a fault names slots of this node, and an accepted count only shrinks."""
    name = f"gpu_uncorrected:{GPU_ADDRESSES[1]}"
    report, earlier = (health(gpu(1, ecc_uncorrected=n, nvlink_errors=n), memory=None) for n in (now, before))
    found = judge(report, earlier, {name: accepted}, Thresholds(), MACHINE)
    assert {slot for fault in found for slot in fault.slots} <= set(EVERY)
    kept = still_accepted(report, {name: accepted}, Thresholds(), MACHINE)
    assert kept.get(name, 0) <= accepted
    assert bool(found) == (now is not None and now > accepted) or any(
        f.cause is FaultCause.NVLINK_ERRORS for f in found
    )
