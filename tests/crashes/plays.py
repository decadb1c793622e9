"""What goes on while a process dies. A play sets its scene, yields, and then acts until everything has ended.

Each request has its own idempotency key and is repeated until it has a response: the client does that.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from psycopg.types.json import Jsonb

from berth.client import SkuUnavailable, TenantInUse, Unauthenticated
from berth.client.models import CreatedAllocation
from tests.crashes.stage import FIRST_AGENT, SECOND_AGENT, Stage
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant

SHORT_LIFE_SECONDS = 20

Play = Callable[[Stage], Iterator[None]]


def one_life(stage: Stage) -> Iterator[None]:
    """Create, active, release, released."""
    tenant = stage.tenant()
    yield
    made = create(stage, tenant)
    tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")
    assert tenant.phases(made).count("released") == 1
    issued = "select type from node_tasks where allocation_id = %s order by queued_at"
    assert stage.execute(issued, made.allocation_id) == [("slice.vm_provision",), ("slice.vm_release",)]


def a_guest_changed(stage: Stage) -> Iterator[None]:
    """It is stopped, started and rebuilt, each twice under one key: one task for each, and the guest ends up running."""
    tenant = stage.tenant()
    yield
    made = create(stage, tenant)
    tenant.wait(made, "active")
    client = tenant.client
    for order, state in (
        (client.stop_allocation, "stopped"), (client.start_allocation, "running"), (client.rebuild_allocation, "running"),
    ):  # fmt: skip
        key = new_key()
        assert order(made.allocation_id, idempotency_key=key) == order(made.allocation_id, idempotency_key=key)
        guest = tenant.wait(made, "active").guest
        assert guest is not None
        assert (guest.state, guest.failure) == (state, None)
    issued = "select type from node_tasks where allocation_id = %s order by queued_at"
    verbs = [(f"allocation.{verb}",) for verb in ("stop", "start", "rebuild")]
    assert stage.execute(issued, made.allocation_id) == [("slice.vm_provision",), *verbs]
    release(tenant, made)
    tenant.wait(made, "released")


def an_effect_cut_short(stage: Stage) -> Iterator[None]:
    """The agent dies over its task: a provision is undone and reported, so the tenant asks again; a release is repeated."""
    tenant = stage.tenant()
    yield
    made = create(stage, tenant)
    ended = tenant.wait(made, "active", "failed")
    if ended.status == "failed":
        assert ended.failure is not None
        assert ended.failure.code == "interrupted"
        made = create(stage, tenant)
        tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")


def three_lives(stage: Stage) -> Iterator[None]:
    """Three creates one after another, then their releases."""
    tenant = stage.tenant()
    yield
    lives = [create(stage, tenant) for _ in range(3)]
    for made in lives:
        tenant.wait(made, "active")
        release(tenant, made)
    for made in lives:
        tenant.wait(made, "released")


def a_refusal(stage: Stage) -> Iterator[None]:
    """What cannot be had is refused, and refused again in the same words."""
    tenant = stage.tenant()
    yield
    key = new_key()
    said = []
    for _ in range(2):
        with pytest.raises(SkuUnavailable) as refused:
            create(stage, tenant, key=key, gpus=128)
        said.append((refused.value.code, refused.value.detail, refused.value.reason))
    assert said[0] == said[1]
    assert allocations_of(stage, tenant, key) == 0
    assert stage.execute("select code from operations where scope = %s and key = %s", tenant.id, key) == [(said[0][0],)]


def an_end_by_force(stage: Stage) -> Iterator[None]:
    """An admin ends what runs."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    yield
    key = new_key()
    for _ in range(2):
        stage.admin.force_release(made.allocation_id, reason="crash test", idempotency_key=key)
    tenant.wait(made, "released")
    audited = "select count(*) from audit where action = 'allocation.force_release' and subject = %s"
    assert stage.execute(audited, f"allocations/{made.allocation_id}") == [(1,)]


def an_end_on_an_admins_word(stage: Stage) -> Iterator[None]:
    """A node is gone with what ran on it; an admin has looked, states that nothing is left, and the units are free."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    stage.lose_node(FIRST_AGENT)
    release(tenant, made)
    yield
    key = new_key()
    for _ in range(2):
        stage.admin.force_cleanup(
            made.allocation_id, runtime_verified_absent=True, reason="crash test", idempotency_key=key
        )
    tenant.wait(made, "released")
    audited = "select count(*) from audit where action = 'allocation.force_cleanup' and subject = %s"
    assert stage.execute(audited, f"allocations/{made.allocation_id}") == [(1,)]
    stage.start(FIRST_AGENT)


def an_event_nobody_can_read(stage: Stage) -> Iterator[None]:
    """It becomes one dead letter, is retried in vain and discarded."""
    yield
    ((event_id,),) = stage.execute(
        """insert into outbox (event_type, correlation_id, subject, payload)
           values ('task.finished', uuidv7(), 'tasks/unreadable', '{}') returning event_id"""
    )
    standing = "select id, state, retry_asked_at is null from dead_letters where event_id = %s"
    wait_for(lambda: len(stage.execute(standing, event_id)) == 1, "the event is buried")
    ((letter, _, _),) = stage.execute(standing, event_id)
    stage.admin.retry_dead_letter(uuid.UUID(str(letter)), idempotency_key=new_key())
    wait_for(lambda: stage.execute(standing, event_id) == [(letter, "dead", True)], "the retry is settled")
    stage.admin.discard_dead_letter(uuid.UUID(str(letter)), reason="crash test", idempotency_key=new_key())


def a_tenant_is_made(stage: Stage) -> Iterator[None]:
    """Any other write of an admin: once, whatever happens to the answer."""
    yield
    key, name = new_key(), f"tenant {uuid.uuid4()}"
    made = [stage.admin.create_tenant(name=name, idempotency_key=key) for _ in range(2)]
    assert made[0] == made[1]
    assert stage.execute("select count(*) from tenants where name = %s", name) == [(1,)]


def a_tenant_is_deleted(stage: Stage) -> Iterator[None]:
    """A tenant that holds something is not deleted; once it holds nothing it is, once, whatever happens to the answer."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    with pytest.raises(TenantInUse):
        stage.admin.delete_tenant(tenant.id, idempotency_key=new_key())
    release(tenant, made)
    tenant.wait(made, "released")
    yield
    key = new_key()
    for _ in range(2):
        stage.admin.delete_tenant(tenant.id, idempotency_key=key)
    assert stage.admin.get_tenant(tenant.id).state == "deleted"
    with pytest.raises(Unauthenticated):
        tenant.client.list_ssh_keys()
    subject = f"tenants/{tenant.id}"
    assert stage.execute("select count(*) from audit where action = 'tenant.delete' and subject = %s", subject) == [
        (1,)
    ]


def a_start_that_never_came(stage: Stage) -> Iterator[None]:
    """The event of a create is not published, its deadline passes, and the rescuer fails the allocation."""
    tenant = stage.tenant()
    stage.kill("relay")
    made = create(stage, tenant)
    yield
    stage.execute(
        """update allocations set waits_since = waits_since - interval '1 day', waits_until = waits_until - interval '1 day'
           where id = %s""",
        made.allocation_id,
    )
    tenant.wait(made, "failed")
    stage.start("relay")


def a_workflow_that_vanished(stage: Stage) -> Iterator[None]:
    """A release waits for its node when its workflow is terminated; another takes over, and the node does the rest."""
    tenant = stage.tenant()
    made, _, workflow_id = waiting_for_its_node(stage, tenant)
    yield
    stage.terminate_workflow(workflow_id)
    taken_over = "select count(*) from node_tasks where allocation_id = %s and notify like 'releasing-overdue-%%'"
    wait_for(lambda: stage.execute(taken_over, made.allocation_id) != [(0,)], "another workflow takes over")
    stage.start(FIRST_AGENT)
    tenant.wait(made, "released")


def a_task_that_nobody_ended(stage: Stage) -> Iterator[None]:
    """A release's task is past its expiry and its workflow is gone; the task is ended and the release tried again."""
    tenant = stage.tenant()
    made, task_id, workflow_id = waiting_for_its_node(stage, tenant)
    yield
    stage.terminate_workflow(workflow_id)
    stage.execute("update node_tasks set expires_at = expires_at - interval '1 day' where id = %s", task_id)
    ended = "select state from node_tasks where id = %s"
    wait_for(lambda: stage.execute(ended, task_id) == [("expired",)], "the task is ended")
    stage.start(FIRST_AGENT)
    tenant.wait(made, "released")


def waiting_for_its_node(stage: Stage, tenant: Tenant) -> tuple[CreatedAllocation, object, str]:
    """A release whose task is issued and whose agent is dead: the allocation, the task's and the workflow's id."""
    made = create(stage, tenant)
    tenant.wait(made, "active")
    stage.kill(FIRST_AGENT)
    release(tenant, made)
    issued = "select id, notify from node_tasks where allocation_id = %s and type = 'slice.vm_release'"
    wait_for(lambda: stage.execute(issued, made.allocation_id) != [], "the release's task is issued")
    ((task_id, notify),) = stage.execute(issued, made.allocation_id)
    return made, task_id, str(notify)


def an_orphan(stage: Stage) -> Iterator[None]:
    """An admin was wrong: the node still holds what was said to be gone. It is found, and destroyed by proof."""
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    stage.kill(FIRST_AGENT)
    release(tenant, made)
    stage.admin.force_cleanup(made.allocation_id, runtime_verified_absent=True, reason="a wrong word")
    node_id = stage.admin.get_node(stage.node(FIRST_AGENT).name).id
    yield
    stage.start(FIRST_AGENT)
    wait_for(lambda: len(list(stage.admin.iterate_orphans(node_id))) == 1, "the orphan is found")
    (orphan,) = stage.admin.iterate_orphans(node_id)
    assert orphan.allocation_id == made.allocation_id
    stage.admin.destroy_orphan(node_id, orphan.id, reason="crash test", idempotency_key=new_key())
    wait_for(lambda: list(stage.admin.iterate_orphans(node_id)) == [], "the orphan is destroyed")
    found = "select count(*) from log where event_type = 'node.orphan_found' and subject = %s and payload @> %s"
    told = Jsonb({"allocation_id": str(made.allocation_id)})
    wait_for(lambda: stage.execute(found, f"nodes/{node_id}", told) == [(1,)], "one event exists")


def a_node_falls_silent(stage: Stage) -> Iterator[None]:
    """An agent is gone, its node is marked offline; it comes back and works."""
    node = stage.node(FIRST_AGENT).name
    stage.kill(FIRST_AGENT)
    yield
    stage.execute("update nodes set last_seen_at = last_seen_at - interval '1 day' where name = %s", node)
    wait_for(lambda: not stage.admin.get_node(node).online, "the node is offline")
    stage.start(FIRST_AGENT)
    wait_for(lambda: stage.admin.get_node(node).online, "the node is online again")
    tenant = stage.tenant()
    made = create(stage, tenant)
    tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")


def a_lost_stream(stage: Stage) -> Iterator[None]:
    """NATS has lost the stream; the relay makes it anew from the log."""
    stage.kill("relay")
    stage.delete_stream()
    yield
    yield from one_life(stage)


def an_enrolment(stage: Stage) -> Iterator[None]:
    """A node without an identity enrols with a one-time token, which stays good until its answer is kept."""
    stage.forget_identity(SECOND_AGENT)
    yield
    stage.come_online(SECOND_AGENT)
    assert stage.certificates_beside_requests() == []


def a_renewal(stage: Stage) -> Iterator[None]:
    """A node's certificate is short-lived and renewed at half of its life."""
    _issue_for_a_short_life(stage)
    yield
    stage.come_online(SECOND_AGENT)
    wait_for(lambda: stage.certificates(SECOND_AGENT) > 1, "the certificate is renewed")
    stage.kill("issuer")
    stage.start("issuer")
    _see_it_renewed_for_long(stage)


def a_renewal_by_the_next_issuer(stage: Stage) -> Iterator[None]:
    """A node's certificate is short-lived; the issuer that is started after the crash gives it a long life."""
    _issue_for_a_short_life(stage)
    yield
    stage.come_online(SECOND_AGENT)
    _see_it_renewed_for_long(stage)


def _issue_for_a_short_life(stage: Stage) -> None:
    stage.kill("issuer")
    stage.child("issuer").spawn({"BERTH_NODE_CERTIFICATE_SECONDS": str(SHORT_LIFE_SECONDS)})
    stage.child("issuer").wait_ready()
    stage.forget_identity(SECOND_AGENT)


def _see_it_renewed_for_long(stage: Stage) -> None:
    wait_for(lambda: stage.certificate_seconds(SECOND_AGENT) > SHORT_LIFE_SECONDS, "it is renewed for long")
    assert stage.certificates(SECOND_AGENT) > 1
    assert stage.certificates_beside_requests() == []


def create(stage: Stage, tenant: Tenant, *, key: str | None = None, gpus: int = 2) -> CreatedAllocation:
    """Ask for GPUs, then once more with the same key: one allocation was made, and both answers name it."""
    key = key or new_key()
    made = [
        tenant.client.create_allocation(
            sku="h100.slice", gpus=gpus, region="eu-1", ssh_key_ids=[tenant.ssh_key_id], idempotency_key=key
        )
        for _ in range(2)
    ]
    assert made[0].allocation_id == made[1].allocation_id
    assert allocations_of(stage, tenant, key) == 1
    return made[0]


def release(tenant: Tenant, made: CreatedAllocation) -> None:
    """Ask for the release under a key."""
    tenant.client.release_allocation(made.allocation_id, idempotency_key=new_key())


def allocations_of(stage: Stage, tenant: Tenant, key: str) -> int:
    """How many allocations a key made."""
    query = "select count(*) from allocations where tenant_id = %s and operation_key = %s"
    return int(str(stage.execute(query, tenant.id, key)[0][0]))


def new_key() -> str:
    """An idempotency key."""
    return str(uuid.uuid4())
