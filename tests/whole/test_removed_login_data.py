"""After a proven release neither a row nor an agent's journal contains the user data or the SSH key of an allocation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.allocations.stored_text import places_of
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole

MARKER = "marker-e88d20aa41"


def holding_files(directory: Path, marker: bytes) -> list[str]:
    """Files of the agents that contain the marker, the journals and their write-ahead logs included."""
    files = [file for file in directory.glob("agents/**/*") if file.is_file()]
    assert any(file.name == "journal-wal" for file in files), "a journal is open"
    return [file.name for file in files if marker in file.read_bytes()]


@pytest.mark.full
def test_a_released_allocation_leaves_no_user_data_anywhere(whole: Whole, tenant: Tenant) -> None:
    url, state = whole.stack.endpoints.database_url, whole.stack.state.path
    made = tenant.client.create_allocation(
        sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[tenant.ssh_key_id], user_data=f"#!/bin/sh\n# {MARKER}\n"
    )
    tenant.wait(made, "active")
    assert "node_tasks payload" in places_of(url, MARKER)
    assert "allocations.user_data" in places_of(url, MARKER)
    tenant.client.release_allocation(made.allocation_id)
    released = tenant.wait(made, "released")
    assert released.ssh_key_ids == []
    assert places_of(url, MARKER) == []
    wait_for(lambda: holding_files(state, MARKER.encode()) == [], "the agents' files without the marker")
