"""Segments of sites and ports of machines, for operators."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_tasks import MetalInspectReport
from orchestrator.database.transactions import Database, Reading
from orchestrator.nodes.deploy_systems import store as deploy_systems
from orchestrator.nodes.store import nodes
from orchestrator.problems import NotFound
from orchestrator.sites.ports import store
from orchestrator.sites.ports.documents import ports_document, segments_document
from orchestrator.sites.store import bmc_tasks, sites


async def find_segments(database: Database, site_id: UUID) -> JsonObject:
    """The segments of a site, with what is leased. Raises `NotFound`."""
    async with database.reading() as reading:
        await sites.read_site(reading, site_id)
        return await show_segments(reading, site_id)


async def show_segments(reading: Reading, site_id: UUID) -> JsonObject:
    """The same of a site that is there. Raises `NotFound` if it has none."""
    found = await store.read_segments(reading, site_id)
    if found is None:
        raise NotFound(f"site {site_id} has no segments: berth site segments set")
    return segments_document(found, await store.list_leased(reading, site_id))


async def find_ports(database: Database, node_id: UUID) -> JsonObject:
    """The ports of a machine, where they are, and what its inspection heard. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await show_ports(reading, node_id)


async def show_ports(reading: Reading, node_id: UUID) -> JsonObject:
    """The same of a node that is there."""
    ports = await store.read_ports(reading, node_id)
    placed = await store.read_node_segment(reading, node_id)
    task = (await bmc_tasks.newest_tasks(reading, [node_id])).get(node_id)
    known = await deploy_systems.read_machine(reading, node_id) if ports else None
    neighbours = None if known is None else MetalInspectReport.model_validate(known.report).neighbours
    return ports_document(node_id, ports, placed, task, neighbours)
