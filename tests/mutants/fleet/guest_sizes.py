"""Mutants of the sizes of guests: what a SKU states, and what a node gives."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SIZING = "node_agent/drivers/libvirt/sizing.py"
SPLIT = ("tests/libvirt_driver/placement/test_sizing.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "guest size: a guest has more processors than its slots",
        "agent",
        SIZING,
        "    if processors > most.processors:",
        "    if processors > 2 * most.processors:",
        SPLIT,
    ),
    Mutant(
        "guest size: a guest has more memory than its slots",
        "agent",
        SIZING,
        "    if memory_bytes > most.memory_bytes:",
        "    if memory_bytes > 2 * most.memory_bytes:",
        SPLIT,
    ),
    Mutant(
        "guest size: memory is cut inside a huge page",
        "agent",
        SIZING,
        "max(MEMORY_STEP_BYTES, self.huge_page_kib * 1024)",
        "MEMORY_STEP_BYTES",
        SPLIT,
    ),
    Mutant(
        "guest size: any memory is accepted for huge pages",
        "agent",
        SIZING,
        "    if share.huge_page_kib and memory_bytes",
        "    if False and memory_bytes",
        SPLIT,
    ),
    Mutant(
        "guest size: the last processors are taken",
        "agent",
        SIZING,
        "processors=cell.processors[:count]",
        "processors=cell.processors[-count:]",
        SPLIT,
    ),
    Mutant(
        "guest size: a NUMA node gives nothing",
        "agent",
        SIZING,
        "    while 0 in given:",
        "    while False:",
        SPLIT,
    ),
    Mutant(
        "guest size: each NUMA node gives the same",
        "agent",
        SIZING,
        "    given = [total * part // every for part in parts]",
        "    given = [min(part, total // len(parts)) for part in parts]",
        SPLIT,
    ),
    Mutant(
        "guest size: the definition has the share of the slots",
        "agent",
        "node_agent/drivers/libvirt/placing.py",
        "        sized = self.sized(slots, stated)\n",
        "        sized = self.sized(slots, None)\n",
        SPLIT,
    ),
    Mutant(
        "guest size: a task without one names it",
        "agent",
        "node_agent/protocol.py",
        "    guest_size: GuestSize | None = Field(None, exclude_if=lambda it: it is None)",
        "    guest_size: GuestSize | None = None",
        SPLIT,
    ),
]
