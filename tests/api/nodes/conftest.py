"""A registered node, and the node listener beside the public one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.calling import Caller, new_node, new_region
from tests.api.nodes.node_side import NodeSide, node_listener_over
from tests.support.public_api import PublicApi


@pytest.fixture
def node(admin: Caller) -> Any:
    """A registered node."""
    return new_node(admin, new_region(admin))


@pytest.fixture
def node_side(api: PublicApi, tmp_path: Path) -> Iterator[NodeSide]:
    """The node listener over the same database."""
    with node_listener_over(api, tmp_path) as side:
        yield side
