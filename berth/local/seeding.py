"""Fills an empty control plane through the admin API: regions, an image, SKUs, nodes. Safe to repeat."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from berth.cli.known_stack import StackProblem
from berth.client import AlreadyExists, Client, Node, NotFound
from berth.local import fleet
from berth.local.fleet import PlannedNode
from berth.local.state import write_whole

IMAGE_LINES = 4096
ONLINE_SECONDS_MAX = 60.0


def make_image(directory: Path) -> tuple[str, str]:
    """Write a small file in place of an operating system image; return its file:// URL and SHA-256."""
    path = directory / f"{fleet.IMAGE}.img"
    if not path.exists():
        write_whole(path, "".join(f"berth sandbox image {fleet.IMAGE} block {n:06d}\n" for n in range(IMAGE_LINES)))
    return path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()


def _as_it_is(image: Path) -> tuple[str, str]:
    with image.open("rb") as file:
        return image.absolute().as_uri(), hashlib.file_digest(file, "sha256").hexdigest()


def seed_catalogue(admin: Client, images: Path, bootable: Path | None = None) -> None:
    """Regions, the image and both SKUs, as the demo and the examples in the documentation use them.

    `bootable` is the image for nodes with guests.
    """
    for name, display_name in fleet.REGIONS.items():
        admin.put_region(name, display_name=display_name)
    url, sha256 = make_image(images) if bootable is None else _as_it_is(bootable)
    admin.put_image(fleet.IMAGE, url=url, sha256=sha256, shapes=["baremetal", "gpu_slice"])
    admin.put_sku(
        fleet.SLICE_SKU, shape="gpu_slice", gpu_model=fleet.GPU_MODEL, allowed_counts=fleet.SLICE_COUNTS,
        default_image=fleet.IMAGE, price_micro_per_gpu_second=800,
    )  # fmt: skip
    admin.put_sku(
        fleet.METAL_SKU, shape="baremetal", gpu_model=fleet.GPU_MODEL, allowed_counts=fleet.METAL_COUNTS,
        default_image=fleet.IMAGE, price_micro_per_gpu_second=700,
    )  # fmt: skip


def ensure_node(admin: Client, planned: PlannedNode) -> Node:
    """The node as registered, registering it first if it is new."""
    try:
        return admin.get_node(planned.name)
    except NotFound:
        try:
            return admin.create_node(
                name=planned.name, region=planned.region, gpu_model=fleet.GPU_MODEL, shape=planned.shape,
                slot_count=planned.slots, half_slots=planned.half_slots, address="127.0.0.1",
            )  # fmt: skip
        except AlreadyExists:
            return admin.get_node(planned.name)


def wait_online(admin: Client, names: set[str]) -> None:
    """Return when every named node is online; raises `StackProblem` naming those that are not after 60 s."""
    deadline = time.monotonic() + ONLINE_SECONDS_MAX
    while missing := names - {node.name for node in admin.iterate_nodes() if node.online}:
        if time.monotonic() > deadline:
            raise StackProblem(f"these nodes did not come online: {', '.join(sorted(missing))}; see their agents' logs")
        time.sleep(0.1)
