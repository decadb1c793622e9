"""Keep the list of accepted firmware of each model of machines. It counts at the next release."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.firmware import store as firmware_lists
from orchestrator.nodes.firmware.documents import list_document
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import NotFound
from orchestrator.tenants.principals import Actor


async def put_firmware_list(
    context: Context, operation: Operation, actor: Actor, *, vendor: str, product: str, components: Sequence[JsonObject]
) -> Answer:  # fmt: skip
    """200 with the list of the model, which replaces the one before."""

    async def effect(tx: Transaction) -> Done:
        kept = await firmware_lists.put_list(tx, vendor, product, components, f"{actor.kind.value}:{actor.id}")
        said = {"vendor": vendor, "product": product, "components": list(components)}
        await audit.record(tx, actor, "firmware_list.put", f"firmware-lists/{kept.id}", said, operation.request_id)
        return Done(200, list_document(kept), kept.id)

    return await run_once(context, operation, effect, None)


async def delete_firmware_list(context: Context, operation: Operation, actor: Actor, list_id: UUID) -> Answer:
    """204: releases of the model compare with the inspection alone. Raises `NotFound`."""

    async def effect(tx: Transaction) -> Done:
        model = await firmware_lists.delete_list(tx, list_id)
        if model is None:
            raise NotFound(f"there is no firmware list {list_id}")
        said = {"vendor": model[0], "product": model[1]}
        await audit.record(tx, actor, "firmware_list.delete", f"firmware-lists/{list_id}", said, operation.request_id)
        return Done(204, None, list_id)

    return await run_once(context, operation, effect, None)
