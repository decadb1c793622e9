"""CHECK constraints of the sizes of guests."""

from __future__ import annotations

from tests.schema.checks import Check

CHECKS = {
    "sku_memory_is_bounded": Check(
        "skus",
        tuple({"memory_bytes_per_gpu": wrong} for wrong in (0, 63 << 20, (64 << 20) + 1, (1 << 46) + (1 << 20))),
        ({"memory_bytes_per_gpu": 64 << 20}, {"memory_bytes_per_gpu": 1 << 46}),
    ),
    "sku_size_is_of_slices": Check(
        "skus",
        ({"shape": "baremetal", "vcpus_per_gpu": 1}, {"shape": "baremetal", "memory_bytes_per_gpu": 64 << 20}),
        ({"shape": "baremetal"}, {"vcpus_per_gpu": 1, "memory_bytes_per_gpu": 64 << 20}),
    ),
    "sku_vcpus_are_bounded": Check(
        "skus", ({"vcpus_per_gpu": 0}, {"vcpus_per_gpu": 257}), ({"vcpus_per_gpu": 1}, {"vcpus_per_gpu": 256})
    ),
}
