"""Bugs planted into what operators do: states of nodes, drains, maintenance windows, certificates, the catalogue."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.testbuild.bugs_of_control_plane import conclude_apart
from tests.testbuild.planting import replace, rewrite, rewritten_function


def forget_a_unit_of_drains() -> None:
    """A drain counts one claim less than there are on the node."""
    from orchestrator.nodes.store import drains

    rewrite(drains, "_STANDING", "(select count(*) from claims c", "(select greatest(count(*) - 1, 0) from claims c")


def commit_windows_without_claims() -> None:
    """A maintenance window is written, and its units are not claimed."""
    from orchestrator.maintenance import store

    replace(store, "_CLAIM", "select cast(:id as uuid)")


def accept_revoked_certificates() -> None:
    """A certificate counts until its end, whether it was revoked or not."""
    from orchestrator.nodes.store import certificates

    rewrite(certificates, "_FIND", "and c.revoked_at is null", "")


def sell_retired_skus() -> None:
    """Creates ignore the state of a SKU."""
    from orchestrator.catalogue import inventory_store

    rewrite(inventory_store, "_SKUS", "price_version, state,", "price_version, 'active' as state,")


def change_the_catalogue_apart_from_its_key() -> None:
    """A change of the catalogue commits before its key is read."""
    from orchestrator.catalogue import commands

    async def run_once(context: Any, operation: Any, effect: Any, *_: Any) -> Any:
        async with context.database.transaction() as tx:
            done = await effect(tx)
        return await conclude_apart(context, operation, done)

    replace(commands, "run_once", run_once)


def sell_at_the_price_of_activation() -> None:
    """An allocation that becomes active has the price of that moment."""
    from orchestrator.allocations.commands import provision

    genuine = vars(provision)["lock_allocation"]

    async def lock_allocation(tx: Any, *arguments: Any) -> Any:
        subject = await genuine(tx, *arguments)
        if subject is None:
            return None
        found = await tx.execute("select price_version from skus where name = :sku", {"sku": subject.sku})
        return dataclasses.replace(subject, price_version=found.scalar_one())

    replace(provision, "lock_allocation", lock_allocation)


def uncordon_by_word_alone() -> None:
    """An uncordon emits its event, and the node stays as it was."""
    from orchestrator.nodes.states import NodeState
    from orchestrator.nodes.store import nodes

    genuine = nodes.set_node_state

    async def set_node_state(tx: Any, node_id: Any, state: Any) -> None:
        if state is not NodeState.ACTIVE:
            await genuine(tx, node_id, state)

    replace(nodes, "set_node_state", set_node_state)


def retire_nodes_in_use() -> None:
    """A node is retired whatever is on it, and its certificates are not revoked."""
    from orchestrator.nodes.commands import nodes
    from orchestrator.nodes.store import certificates

    async def nothing(*_: Any) -> None:
        """Whatever is on it."""

    replace(nodes, "require_no_open_claims", nothing)
    replace(certificates, "revoke_certificates", nothing)
    rewrite(certificates, "_FIND", "and n.state <> 'retired'", "")


SQL_OF_FLEET: dict[str, str] = {
    "cordon_ignored": rewritten_function(
        "lock_best_node",
        ("and state = 'active' and online", "and online"),
        ("n.state = 'active' and n.online", "n.online"),
    ),
    "quarantine_ignored": rewritten_function(
        "refresh_node_fit",
        ("s.state = 'in_service' and not", "not"),
    ),
}
