"""What the fleet and the catalogue are in the end, as an operator reads them."""

from __future__ import annotations

import json
from typing import Any

from berth.client import AsyncClient, BerthError, NotFound
from tests.campaign.fleet_history import CATALOGUE_KINDS, Audited
from tests.campaign.history import History
from tests.support.waiting import read_until

READ_SECONDS_MAX = 20.0
ACTIONS = ("sku.put", "image.put", "image.delete", "region.put", "pool.set_attestation")
"""The audited actions on the catalogue."""


async def read_fleet(admin: AsyncClient, history: History) -> list[str]:
    """Read states, catalogue and audit into the history; a sentence if they cannot be read in time."""

    async def read() -> str | None:
        try:
            await _read(admin, history)
        except BerthError as error:
            return f"the fleet cannot be read: {error}"
        return None

    failed = await read_until(read, lambda sentence: sentence is None, READ_SECONDS_MAX)
    return [] if failed is None else [failed]


async def _read(admin: AsyncClient, history: History) -> None:
    fleet = history.fleet
    fleet.states = {node.id: node.state async for node in admin.iterate_nodes()}
    found: dict[str, dict[str, Any]] = {}
    async for sku in admin.iterate_skus():
        found[f"skus/{sku.name}"] = sku.model_dump(mode="json")
    async for region in admin.iterate_regions():
        found[f"regions/{region.name}"] = region.model_dump(mode="json")
    async for pool in admin.iterate_pools():
        found[f"pools/{pool.id}"] = pool.model_dump(mode="json")
    for subject in written_subjects(history):
        if subject.startswith("images/"):
            try:
                found[subject] = (await admin.get_image(subject.removeprefix("images/"))).model_dump(mode="json")
            except NotFound:
                continue
    fleet.documents = {subject: found.get(subject) for subject in written_subjects(history)}
    fleet.audited = [
        Audited(entry.operation_key, entry.action, entry.subject, entry.code, entry.detail)
        for action in ACTIONS
        async for entry in admin.iterate_audit(action=action)
    ]


def written_subjects(history: History) -> list[str]:
    """The subjects of the catalogue that operators wrote."""
    return sorted({json.loads(a.content)["subject"] for a in history.attempts if a.kind in CATALOGUE_KINDS})
