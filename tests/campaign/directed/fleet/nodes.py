"""Scenes with nodes: cordons, quarantines, drains, retirements, maintenance windows and certificates."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.maintenance.commands.windows import Bounds, Wanted, commit_maintenance
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.states import Resolution
from orchestrator.nodes.commands.certificates import revoke_node_certificates
from orchestrator.nodes.commands.drains import advance_drain, drain_node, uncordon_node
from orchestrator.nodes.commands.nodes import cordon_node, retire_node
from orchestrator.nodes.commands.quarantines import quarantine_slot
from orchestrator.nodes.drains.rules import AtDeadline, DrainOrder
from orchestrator.nodes.queries import find_standing
from orchestrator.operations.execution import Context
from orchestrator.problems import Unauthenticated
from orchestrator.reservations.resource_names import parse_resources
from tests.allocations.driving import ADMIN, release
from tests.allocations.seeding import SLOTS, Seeded, connect, create_allocation, try_create
from tests.campaign.directed.fleet.operators import begin, note, read_end, written
from tests.campaign.directed.scene import Scene
from tests.campaign.fleet_history import CertificateUse

SERIAL = "abc"


def a_create_on_a_cordoned_node(scene: Scene) -> None:
    """The only node is cordoned, and a tenant wants a slot."""
    seeded = begin(scene)
    scene.run(lambda context: _cordon(scene, context, seeded.nodes[0].id))
    _create_if_there_is_room(scene, seeded)


def a_create_on_a_slot_in_quarantine(scene: Scene) -> None:
    """One slot of the only node is in quarantine, and a tenant wants all of them."""
    seeded = begin(scene)
    node_id = seeded.nodes[0].id

    async def play(context: Context) -> None:
        answer = await quarantine_slot(context, written("out"), ADMIN, node_id, 3, reason="scene", evidence=None)
        note(scene, "quarantine", "out", f"nodes/{node_id}", answer, slot=3)

    scene.run(play)
    _create_if_there_is_room(scene, seeded, gpus=SLOTS)


def a_drain_with_something_left(scene: Scene) -> None:
    """A node drains while an allocation is active on it; the sweeper comes before and after the allocation's end."""
    seeded = begin(scene)
    node_id = seeded.nodes[0].id
    allocation_id = create_allocation(scene.url, seeded)

    async def play(context: Context) -> None:
        await scene.provision(context, allocation_id)
        order = DrainOrder(None, AtDeadline.STAY, "scene")
        catalogue = CatalogueCache(context.database, 0.0)
        answer = await drain_node(context, written("drain"), ADMIN, node_id, order, catalogue)
        note(scene, "drain", "drain", f"nodes/{node_id}", answer)
        await advance_drain(context, node_id)
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)
        await advance_drain(context, node_id)

    scene.run(play)
    read_end(scene)


def a_retirement_with_something_left(scene: Scene) -> None:
    """A node is to be retired while an allocation is active on it, and again when it is gone; its certificate is used."""
    seeded = begin(scene)
    node_id = seeded.nodes[0].id
    _certify(scene, node_id)
    allocation_id = create_allocation(scene.url, seeded)

    async def retire(context: Context, key: str) -> None:
        answer = await retire_node(context, written(key), ADMIN, node_id, reason="scene")
        note(scene, "retire", key, f"nodes/{node_id}", answer)

    async def play(context: Context) -> None:
        await scene.provision(context, allocation_id)
        await _use(scene, context, node_id)
        await retire(context, "early")
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)
        await retire(context, "late")
        await _use(scene, context, node_id)

    scene.run(play)
    read_end(scene)


def an_uncordon(scene: Scene) -> None:
    """A node is cordoned and uncordoned."""
    seeded = begin(scene)
    node_id = seeded.nodes[0].id

    async def play(context: Context) -> None:
        await _cordon(scene, context, node_id)
        answer = await uncordon_node(context, written("uncordon"), ADMIN, node_id)
        note(scene, "uncordon", "uncordon", f"nodes/{node_id}", answer)

    scene.run(play)
    read_end(scene)


def a_create_in_a_maintenance_window(scene: Scene) -> None:
    """The only node is in maintenance in an hour, and a tenant wants a slot without an end."""
    seeded = begin(scene)
    name = f"node:{seeded.nodes[0].id}"
    starts_at = datetime.now(UTC) + timedelta(hours=1)
    ends_at = starts_at + timedelta(hours=1)

    async def play(context: Context) -> None:
        policies = Policies(Resolution.NOTIFY, Resolution.MOVE)
        wanted = Wanted(parse_resources([name]), starts_at, ends_at, "scene", policies)
        bounds = Bounds(10, CatalogueCache(context.database, 0.0))
        answer = await commit_maintenance(context, written("window"), ADMIN, wanted, bounds)
        note(scene, "commit_window", "window", "maintenance", answer, allocations="notify")

    scene.run(play)
    _create_if_there_is_room(scene, seeded)


def a_certificate_after_its_revocation(scene: Scene) -> None:
    """A node calls with its certificate before and after it was revoked."""
    seeded = begin(scene)
    node_id = seeded.nodes[0].id
    _certify(scene, node_id)

    async def play(context: Context) -> None:
        await _use(scene, context, node_id)
        answer = await revoke_node_certificates(context, written("revoke"), ADMIN, node_id, reason="scene")
        note(scene, "revoke", "revoke", f"nodes/{node_id}", answer)
        await _use(scene, context, node_id)

    scene.run(play)


def _certify(scene: Scene, node_id: UUID) -> None:
    """The node has a certificate, as if it had enrolled."""
    with connect(scene.url) as connection:
        connection.execute(
            "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
            " select %s, id, epoch, %s, now() - interval '1 minute', now() + interval '1 hour' from nodes where id = %s",
            (SERIAL, b"\0" * 32, node_id),
        )


async def _use(scene: Scene, context: Context, node_id: UUID) -> None:
    """A call with the certificate, as the listener evaluates it."""
    asked = time.monotonic()
    try:
        await find_standing(context.database, node_id, SERIAL)
    except Unauthenticated:
        is_accepted = False
    else:
        is_accepted = True
    use = CertificateUse(node_id, SERIAL, "find_standing", asked, time.monotonic(), is_accepted)
    scene.history.fleet.uses.append(use)


async def _cordon(scene: Scene, context: Context, node_id: uuid.UUID) -> None:
    answer = await cordon_node(context, written("cordon"), ADMIN, node_id)
    note(scene, "cordon", "cordon", f"nodes/{node_id}", answer)


def _create_if_there_is_room(scene: Scene, seeded: Seeded, gpus: int = 1) -> None:
    with connect(scene.url) as connection:
        try_create(connection, seeded, gpus=gpus)
