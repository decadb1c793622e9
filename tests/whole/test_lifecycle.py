"""The allocation lifecycle through every component: requested -> provisioning -> active -> releasing -> released."""

from __future__ import annotations

import asyncssh
import pytest

from berth.client import NotFound, SkuUnavailable, VerbInProgress
from node_agent.key_set import read_public_keys, root_keys
from orchestrator.wipes.certificate import read_certificate, verify_certificate
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole, logs_in

PROVISION_PHASES = ["lease", "image", "boot", "ssh_ready", "guest_marker"]


@pytest.mark.parametrize(("sku", "gpus"), [("h100.slice", 2), pytest.param("h100.metal", 8, marks=pytest.mark.full)])
def test_an_allocation_from_request_to_proven_release(whole: Whole, tenant: Tenant, sku: str, gpus: int) -> None:
    made = tenant.create(sku=sku, gpus=gpus)
    assert made.status == "requested"
    active = tenant.wait(made, "active")
    assert logs_in(active, tenant.private_key, "echo $((6 * 7))").strip() == "42"
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises(asyncssh.PermissionDenied):
        logs_in(active, stranger, "true")
    logs_in(active, tenant.private_key, "echo secret > left-behind")
    devices = whole.admin.get_allocation_devices(made.allocation_id)
    assert (devices.devices, devices.status) == ([], "active")
    assert devices.reason == "a guest of the sandbox is a process of the node and has no virtual device"
    tenant.client.release_allocation(made.allocation_id)
    released = tenant.wait(made, "released")
    assert released.release_result is not None
    proof = {name: released.release_result[name] for name in ("released", "wiped", "leases_released")}
    assert proof == {"released": True, "wiped": True, "leases_released": True}
    assert not list(whole.stack.state.path.glob("agents/*/**/left-behind")), "the tenant's file is gone"
    document = tenant.client.get_wipe_certificate(made.allocation_id).model_dump_json().encode()
    roots = root_keys(read_public_keys(whole.stack.authority.root_keys))
    certificate = verify_certificate(read_certificate(document), made.allocation_id, roots)
    assert [(device.kind, device.level) for device in certificate.predicate.devices] == [("disk", "none")]
    with pytest.raises((OSError, asyncssh.Error)):
        logs_in(active, tenant.private_key, "true")
    phases = tenant.phases(made)
    assert [p for p in phases if p in PROVISION_PHASES] == PROVISION_PHASES
    states = [p for p in phases if p in ("requested", "provisioning", "active", "releasing", "released")]
    assert states == ["requested", "provisioning", "active", "releasing", "released"]
    assert active.active_at is not None
    assert released.releasing_at is not None
    assert released.released_at is not None
    assert active.requested_at < active.active_at < released.releasing_at < released.released_at


@pytest.mark.full  # quicker: tests/node_agent/test_verbs.py, tests/worker/test_both_workflows.py
def test_a_guest_is_stopped_started_and_rebuilt(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create()
    active = tenant.wait(made, "active")
    logs_in(active, tenant.private_key, "echo kept > file")
    tenant.client.stop_allocation(made.allocation_id)
    stopped = tenant.wait(made, "active")
    assert stopped.guest is not None
    assert (stopped.guest.state, stopped.status) == ("stopped", "active")
    with pytest.raises((OSError, asyncssh.Error)):
        logs_in(active, tenant.private_key, "true")
    tenant.client.start_allocation(made.allocation_id)
    assert logs_in(tenant.wait(made, "active"), tenant.private_key, "cat file").strip() == "kept"
    rebuilding = tenant.client.rebuild_allocation(made.allocation_id)
    assert rebuilding.guest is not None
    assert rebuilding.guest.verb == "rebuild"
    with pytest.raises(VerbInProgress):
        tenant.client.stop_allocation(made.allocation_id)
    rebuilt = tenant.wait(made, "active")
    assert rebuilt.connection is not None
    assert rebuilt.connection != active.connection
    with pytest.raises(asyncssh.ProcessError):
        logs_in(rebuilt, tenant.private_key, "cat file")
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    assert whole.violations() == []


@pytest.mark.full  # quicker: tests/allocations/test_cleanup_before_reuse.py
def test_released_gpus_are_placed_again(whole: Whole, tenant: Tenant) -> None:
    first = tenant.create(gpus=8, region="us-1")
    with pytest.raises(SkuUnavailable) as refused:
        tenant.create(gpus=1, region="us-1")
    assert refused.value.extra["reason"] == "busy_now"
    tenant.wait(first, "active")
    tenant.client.release_allocation(first.allocation_id)
    tenant.wait(first, "released")
    second = tenant.create(gpus=8, region="us-1")
    tenant.wait(second, "active")
    tenant.client.release_allocation(second.allocation_id)
    tenant.wait(second, "released")


def test_a_cancel_before_and_during_provisioning_ends_released(tenant: Tenant) -> None:
    made = [tenant.create() for _ in range(3)]
    for allocation in made:
        tenant.client.release_allocation(allocation.allocation_id)
    during = tenant.create()
    tenant.wait(during, "provisioning", "active")
    tenant.client.release_allocation(during.allocation_id)
    for allocation in [*made, during]:
        assert tenant.wait(allocation, "released").status == "released"
    assert "active" not in tenant.phases(made[0])


def test_an_operator_can_always_end_it(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create()
    tenant.wait(made, "active")
    whole.admin.force_release(made.allocation_id, reason="test")
    tenant.wait(made, "released")
    actions = [entry.action for entry in whole.admin.iterate_audit() if str(made.allocation_id) in entry.subject]
    assert actions == ["allocation.create", "allocation.force_release"]


def test_another_tenant_sees_and_touches_nothing(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create()
    stranger = whole.tenant()
    for attempt in (stranger.client.get_allocation, stranger.client.get_timeline, stranger.client.release_allocation):
        with pytest.raises(NotFound):
            attempt(made.allocation_id)
    assert list(stranger.client.iterate_allocations()) == []
    assert tenant.wait(made, "active").status == "active"
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("image_checksum", "image_checksum_mismatch"),
        ("vfio", "vfio_host_not_ready"),
        ("guest_marker", "guest_marker_missing"),
    ],
)
def test_a_failure_has_its_code_and_its_gpus_come_back_clean(
    whole: Whole, tenant: Tenant, fault: str, code: str
) -> None:
    node = next(n for n in whole.admin.iterate_nodes() if n.region == "us-1" and n.shape == "gpu_slice")
    free = whole.admin.get_node(node.id).free_slots
    whole.set_faults(node.id, {fault: "1"})
    try:
        failed = tenant.wait(tenant.create(region="us-1"), "failed")
    finally:
        whole.set_faults(node.id, {})
    assert failed.failure is not None
    assert failed.failure.code == code
    wait_for(lambda: whole.admin.get_node(node.id).free_slots == free, "the units are free again")


def test_live_rows_are_counted(whole: Whole, tenant: Tenant) -> None:
    made = tenant.create(gpus=2)
    tenant.wait(made, "active")
    wait_for(lambda: whole.gauge('berth_worker_allocations{state="active"}') >= 1, "the allocation is counted")
    assert whole.gauge('berth_worker_nodes{online="true",state="active"}') == 3
    pool = 'gpu_model="H100",kind="{}",region="eu-1",shape="gpu_slice"'
    total, free = (whole.gauge(f"berth_worker_gpus{{{pool.format(kind)}}}") for kind in ("total", "free"))
    assert (total, free <= 6) == (8, True)
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")


def test_everything_that_was_promised_was_kept(whole: Whole) -> None:
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    assert whole.violations() == []
