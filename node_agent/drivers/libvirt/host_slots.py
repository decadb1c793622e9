"""What the slots of this host are: its cores, the GPUs by slot, and the NUMA node of each slot.

The GPUs are written down at the first start that finds any: which ones that were, and not which an operator approved. One that
falls off the bus later leaves the other slots as they were. One that is not written down is of no slot; see `remembered_gpus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import ValidationError

from node_agent.discovery.pci import gpus, pci_devices
from node_agent.discovery.processors import core_of_processors, numa_nodes, processors
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.placement import Core, spread
from node_agent.durable_files import write_durably
from node_agent.wire.fields import Closed
from node_agent.wire.layout import layout_of
from node_agent.wire.processors import parse_processors
from node_agent.wire.topology import Topology

log = structlog.get_logger("node_agent.libvirt")

SLOTS_FILE = "slots.json"


class SlotGpu(Closed):
    """The GPU of a slot: its PCI address, and its NUMA node if the firmware names one."""

    address: str
    numa_node: int | None = None


class SlotGpus(Closed):
    """The GPUs of the host: slot i is `gpus[i]`."""

    gpus: list[SlotGpu]


@dataclass(frozen=True)
class HostSlots:
    """Cores, the NUMA node of each slot, and the address of each slot's GPU; both are empty where slots are not known.

    `memory`: bytes by NUMA node, as far as they are known.
    """

    cores: tuple[Core, ...]
    slot_nodes: tuple[int, ...]
    addresses: tuple[str, ...]
    memory: Mapping[int, int] = field(default_factory=dict)


def read_host_slots(root: Path, slots: int, known: SlotGpus | None = None) -> HostSlots:
    """What the files below `root` say. `known`: the GPUs as written down; without GPUs there are `slots` slots."""
    tree = Tree(root, Gaps())
    cores = _cores(tree)
    nodes = sorted({core.numa_node for core in cores})
    found = found_gpus(tree) if known is None else known
    count = len(found.gpus) or slots
    by_gpu = [gpu.numa_node for gpu in found.gpus]
    are_placed = bool(by_gpu) and all(node in nodes for node in by_gpu)
    slot_nodes = tuple(node for node in by_gpu if node is not None) if are_placed else spread(count, nodes)
    memory = {node.number: node.memory_bytes for node in numa_nodes(tree) or () if node.memory_bytes is not None}
    return HostSlots(cores, slot_nodes, tuple(gpu.address for gpu in found.gpus), memory)


def found_gpus(tree: Tree) -> SlotGpus:
    """The GPUs on the bus now, in the order of their slots."""
    topology = Topology(
        driver="libvirt", processors=processors(tree), numa_nodes=numa_nodes(tree),
        gpus=gpus(tree, pci_devices(tree) or []),
    )  # fmt: skip
    layout, by_address = layout_of(topology), {gpu.address: gpu for gpu in topology.gpus or ()}
    addresses = () if layout is None else layout.addresses
    return SlotGpus(gpus=[SlotGpu(address=one, numa_node=by_address[one].numa_node) for one in addresses])


def remembered_gpus(file: Path, root: Path, *, are_passed: bool = False) -> SlotGpus:
    """The GPUs as they were first seen; `file` is written when there are any. Raises OSError.

    `are_passed`: guests get them. Then a GPU that is not written down is refused: the slots mean older hardware.
    """
    found = found_gpus(Tree(root, Gaps()))
    known = read_slots_file(file)
    if known is None:
        if found.gpus:
            write_durably(file, found.model_dump_json().encode())
        return found
    if known != found:
        log.warning(
            "gpus_of_slots_changed", file=str(file), known=[gpu.address for gpu in known.gpus],
            found=[gpu.address for gpu in found.gpus],
            remedy="remove the file when no guest has a GPU and the new hardware is approved",
        )  # fmt: skip
    written = {gpu.address for gpu in known.gpus}
    strangers = [gpu.address for gpu in found.gpus if gpu.address not in written]
    if are_passed and strangers:
        raise OSError(
            f"{', '.join(strangers)} is not in {file}, so it is of no slot; release every guest that has a GPU, approve the"
            " node's topology, and remove the file"
        )
    return known


def read_slots_file(file: Path) -> SlotGpus | None:
    """What was written down; None if nothing was. Raises OSError also for a file that is damaged."""
    try:
        return SlotGpus.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise OSError(f"{file} cannot be read; remove it when no guest has a GPU: {error}") from error


def _cores(tree: Tree) -> tuple[Core, ...]:
    """The cores, by NUMA node and then by their first thread. A processor of no NUMA node is of node 0."""
    node_of: dict[int, int] = {}
    for node in numa_nodes(tree) or ():
        for number in parse_processors(node.processors or ""):
            node_of[number] = node.number
    threads: dict[tuple[int, int, int], list[int]] = {}
    for number, (socket, core) in sorted(core_of_processors(tree).items()):
        threads.setdefault((node_of.get(number, 0), socket, core), []).append(number)
    return tuple(sorted((Core(node, tuple(held)) for (node, _, _), held in threads.items()), key=_order))


def _order(core: Core) -> tuple[int, int]:
    return core.numa_node, core.threads[0]
