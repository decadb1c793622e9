"""One allocation is one trace, with spans of every process that handled it (DESIGN §11)."""

from __future__ import annotations

import httpx

from berth.client import Allocation
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole
from tests.whole.collector import Collector, RecordedSpan

CALLERS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

TOLD_BY_API = {"POST /api/v1/allocations", "POST /api/v1/allocations/{id}/release"}
COMMANDS = {"begin_provisioning", "finish_provisioning", "begin_release", "finish_release"}
TOLD_BY_WORKER = {
    "deliver provisioning.requested", "handle provisioning.requested", "task slice.vm_provision",
    "deliver provisioning.releasing.requested", "handle provisioning.releasing.requested", "task slice.vm_release",
}  # fmt: skip


def test_one_trace_follows_an_allocation_through_every_process(
    whole: Whole, tenant: Tenant, collector: Collector
) -> None:
    body = {"sku": "h100.slice", "gpus": 1, "region": "eu-1", "ssh_key_ids": [str(tenant.ssh_key_id)]}
    headers = {"traceparent": f"00-{CALLERS_TRACE}-00f067aa0ba902b7-01", "authorization": f"Bearer {tenant.api_key}"}
    made = httpx.post(f"{whole.stack.endpoints.api_url}/api/v1/allocations", json=body, headers=headers)
    assert made.status_code == 201
    allocation = tenant.client.get_allocation(made.json()["allocation_id"])
    tenant.wait(allocation, "active")
    tenant.client.release_allocation(allocation.allocation_id)
    ended = tenant.wait(allocation, "released")

    trace_id = allocation.correlation_id.hex
    wanted = TOLD_BY_API | TOLD_BY_WORKER | COMMANDS
    # Each process hands its spans over when it has some, the innermost first.
    wait_for(lambda: wanted <= _names(spans := collector.trace(trace_id)) and not _lost(spans), f"{wanted}, and whole")
    spans = collector.trace(trace_id)
    first = spans[0]
    assert (first.service, first.name, first.parent_id) == ("berth-orchestrator", "POST /api/v1/allocations", "")
    assert first.span_id == trace_id[16:], "the root span's id is the end of the correlation id"
    assert first.links == (CALLERS_TRACE,), "the caller finds the allocation's trace from its own"
    assert {span.service for span in spans if span.name in TOLD_BY_WORKER} == {"berth-worker"}
    assert not [span for span in spans if span.failed]
    _lies_within(spans, ended)


def _names(spans: list[RecordedSpan]) -> set[str]:
    return {name for span in spans for name in (span.name, span.name.rpartition(":")[2])}


def _lost(spans: list[RecordedSpan]) -> list[RecordedSpan]:
    """Spans without a parent in the list."""
    known = {span.span_id for span in spans}
    return [span for span in spans[1:] if span.parent_id not in known]


def _lies_within(spans: list[RecordedSpan], ended: Allocation) -> None:
    (task,) = [span for span in spans if span.name == "task slice.vm_release"]
    assert ended.released_at is not None
    assert spans[0].began <= task.began < task.ended <= ended.released_at.timestamp() * 1e9


def test_a_refusal_is_no_failure_in_a_trace(whole: Whole, tenant: Tenant, collector: Collector) -> None:
    body = {"sku": "h100.slice", "gpus": 1, "region": "nowhere", "ssh_key_ids": [str(tenant.ssh_key_id)]}
    caller = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{caller}-b7ad6b7169203331-01", "authorization": f"Bearer {tenant.api_key}"}
    refused = httpx.post(f"{whole.stack.endpoints.api_url}/api/v1/allocations", json=body, headers=headers)
    assert refused.status_code == 409
    wait_for(lambda: bool(collector.linked_to(caller)), "the refused request's span")
    (span,) = collector.linked_to(caller)
    assert not span.failed
