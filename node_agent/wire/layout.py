"""Which slot of a node is which GPU: one rule, for the control plane and for the agent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from node_agent.wire.topology import Topology


@dataclass(frozen=True, slots=True)
class Layout:
    """Slots as the GPUs give them: slot i is `addresses[i]`; the first `half_slots` lie in the first NUMA half.

    `half_slots` is None where the GPUs do not lie in two halves; `gpu_model` where it is unknown or not the same of all.
    """

    addresses: tuple[str, ...]
    half_slots: int | None
    gpu_model: str | None


def layout_of(topology: Topology) -> Layout | None:
    """The slots that follow from a topology: by NUMA half, then by address. None if its GPUs are unknown."""
    if topology.gpus is None:
        return None
    lower = _lower_half(topology)
    gpus = sorted(topology.gpus, key=lambda gpu: (gpu.numa_node not in lower, gpu.address))
    first = sum(gpu.numa_node in lower for gpu in gpus)
    are_placed = all(gpu.numa_node is not None for gpu in gpus) and 0 < first < len(gpus)
    if not are_placed:
        gpus = sorted(gpus, key=lambda gpu: gpu.address)
    models = {gpu.model for gpu in gpus}
    return Layout(
        addresses=tuple(gpu.address for gpu in gpus),
        half_slots=first if are_placed else None,
        gpu_model=models.pop() if len(models) == 1 else None,
    )


def _lower_half(topology: Topology) -> set[int | None]:
    """The NUMA nodes of the first half: those with processors, the lower half of their numbers."""
    numbers = sorted(node.number for node in topology.numa_nodes or () if node.processors)
    return set(numbers[: (len(numbers) + 1) // 2])
