"""Refusals of the sizes of guests that SKUs state."""

from __future__ import annotations

from berth.client.errors import Refused


class GuestSizeFixed(Refused):
    """The SKU has another size of guests, or none; `extra` has the one that it has."""

    codes = ("guest_size_fixed",)


class GuestSizeMisfit(Refused):
    """A slot of a node has less than a SKU of its pool states; `extra` has `node`, `sku` and `slot`."""

    codes = ("guest_size_misfit",)


class GuestSizeUnsupported(Refused):
    """The agent of a node makes no guests of a stated size; `extra` has `node`, `sku` and `agent_version`."""

    codes = ("guest_size_unsupported",)
