"""Scenes with the catalogue: a price is changed, a SKU is retired, a change comes again."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from orchestrator.allocations.commands.create import create_allocations
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.catalogue.commands import put_sku
from orchestrator.catalogue.rules import GuestSize
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Problem
from tests.allocations.driving import ADMIN, operation
from tests.allocations.seeding import GPU_MODEL, IMAGE, REGION, SLICE_SKU, Seeded
from tests.campaign.directed.fleet.operators import begin, note, read_audit, written
from tests.campaign.directed.scene import Scene
from tests.campaign.history import Outcome

SUBJECT = f"skus/{SLICE_SKU}"


def a_create_after_the_retirement(scene: Scene) -> None:
    """A SKU is retired while another process has read the catalogue, and that process gets a create."""
    seeded = begin(scene)

    async def play(context: Context) -> None:
        catalogue = CatalogueCache(context.database, 60.0)
        await catalogue.current()
        await _put(scene, context, "retire", 1_000, "retired")
        await _create(scene, context, catalogue, seeded)

    scene.run(play)


def a_price_that_changes_during_a_provision(scene: Scene) -> None:
    """The price changes between the create and the moment at which the allocation is active."""
    seeded = begin(scene)

    async def play(context: Context) -> None:
        await _put(scene, context, "before", 1_000, "active")
        allocation_id = await _create(scene, context, CatalogueCache(context.database, 0.0), seeded)
        assert allocation_id is not None, "there is room"
        await _put(scene, context, "after", 2_000, "active")
        await scene.provision(context, allocation_id)

    scene.run(play)


def a_change_that_comes_again(scene: Scene) -> None:
    """A price is set, then another one, and the first request comes again with its key."""
    begin(scene)

    async def play(context: Context) -> None:
        await _put(scene, context, "first", 1_000, "active")
        last = await _put(scene, context, "second", 2_000, "active")
        await _put(scene, context, "first", 1_000, "active")
        assert json.loads(last.body)["price_micro_per_gpu_second"] == 2_000
        catalogue = await CatalogueCache(context.database, 0.0).current()
        version = catalogue.skus[SLICE_SKU].price_version
        scene.history.fleet.documents[SUBJECT] = {**json.loads(last.body), "price_version": version}

    scene.run(play)
    read_audit(scene, "sku.put")


async def _put(scene: Scene, context: Context, key: str, price: int, state: str) -> Answer:
    asked = written(key, f"{price} {state}".encode())
    sku: dict[str, Any] = {
        "shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1, 2, 4, 8], "default_image": IMAGE,
        "price_micro_per_gpu_second": price, "state": state, "size": GuestSize(),
    }  # fmt: skip
    answer = await put_sku(context, asked, ADMIN, name=SLICE_SKU, **sku)
    note(scene, "put_sku", key, SUBJECT, answer, price=price, state=state)
    return answer


async def _create(scene: Scene, context: Context, catalogue: CatalogueCache, seeded: Seeded) -> UUID | None:
    """The allocation, if it was had."""
    asked = operation(seeded)
    create = Create(
        asked, seeded.tenant_id, "scene", SLICE_SKU, 1, REGION, None, (seeded.ssh_key_id,), None, {}, None, uuid4()
    )
    content = json.dumps({"sku": SLICE_SKU, "gpus": 1, "region": REGION})
    (result,) = await create_allocations(context, catalogue, [create])
    if not isinstance(result, Answer) or result.status >= 400:
        code = result.code if isinstance(result, Problem) else str(result)
        scene.write("create", asked.key, content, Outcome.REFUSED, code)
        return None
    allocation_id = UUID(json.loads(result.body)["allocation_id"])
    scene.told("create", asked.key, content, result, allocation_id)
    return allocation_id
