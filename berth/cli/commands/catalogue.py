"""`berth sku`, `berth region`: the catalogue; its images are in `berth.cli.images`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.commands.nodes import Shape
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

skus = typer.Typer(no_args_is_help=True, help="SKUs: the products that tenants rent.")
regions = typer.Typer(no_args_is_help=True, help="Regions: the locations of nodes.")

SKU: list[Column] = [
    ("name", lambda s: s.name), ("shape", lambda s: s.shape), ("gpu model", lambda s: s.gpu_model),
    ("counts", lambda s: s.allowed_counts), ("image", lambda s: s.default_image),
    ("price/GPU s", lambda s: f"{s.price_micro_per_gpu_second / 1e6:.6f}"), ("vCPUs/GPU", lambda s: s.vcpus_per_gpu),
    ("MiB/GPU", lambda s: None if s.memory_bytes_per_gpu is None else s.memory_bytes_per_gpu // MIB),
    ("state", lambda s: s.state),
]  # fmt: skip
MIB = 2**20
REGION: list[Column] = [("name", lambda r: r.name), ("display name", lambda r: r.display_name)]

NameArgument = Annotated[str, typer.Argument(help="unique name")]


class State(StrEnum):
    """Whether new allocations may use it."""

    ACTIVE = "active"
    RETIRED = "retired"


@command(skus, "put")
def put_sku(
    session: Session,
    name: NameArgument,
    shape: Annotated[Shape, typer.Option(help="whole nodes or slices")],
    gpu_model: Annotated[str, typer.Option(help="the GPU model that the nodes report")],
    count: Annotated[list[int], typer.Option(help="an allowed number of GPUs, repeatable", min=1)],
    default_image: Annotated[str | None, typer.Option(help="image to boot if a create names none")] = None,
    price: Annotated[int | None, typer.Option(help="micro-units per GPU and second", min=0)] = None,
    state: Annotated[State | None, typer.Option(help="retired: no new allocations")] = None,
    vcpus: Annotated[
        int | None, typer.Option(help="vCPUs of a guest for each GPU; fixed by the first put", min=1)
    ] = None,
    memory_mib: Annotated[
        int | None, typer.Option(help="MiB of memory of a guest for each GPU; fixed by the first put", min=64)
    ] = None,
) -> None:
    """Create or change a SKU (admin keys only)."""
    with session.client() as client:
        made = client.put_sku(
            name, shape=shape.value, gpu_model=gpu_model, allowed_counts=count, default_image=default_image,
            price_micro_per_gpu_second=price, state=state.value if state else None,
            vcpus_per_gpu=vcpus, memory_bytes_per_gpu=None if memory_mib is None else memory_mib * MIB,
        )  # fmt: skip
        show_one(session, made, SKU)


@command(skus, "list")
def list_skus(session: Session) -> None:
    """List the SKUs."""
    with session.client() as client:
        show_list(session, client.iterate_skus(), SKU)


@command(regions, "put")
def put_region(
    session: Session, name: NameArgument, display_name: Annotated[str, typer.Option(help="name shown to people")]
) -> None:
    """Create or change a region (admin keys only)."""
    with session.client() as client:
        show_one(session, client.put_region(name, display_name=display_name), REGION)


@command(regions, "list")
def list_regions(session: Session) -> None:
    """List the regions."""
    with session.client() as client:
        show_list(session, client.iterate_regions(), REGION)
