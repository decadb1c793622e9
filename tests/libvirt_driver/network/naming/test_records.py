"""What is recorded of a guest's names: an agent of the version before reads the record, and names are not worth a guest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_agent.wire.networks import NetworkOrder
from tests.libvirt_driver.definitions import guest
from tests.libvirt_driver.network.stage import A1

NAMED = A1.order.model_copy(update={"names": ["berth-1", "web"]})


def test_a_record_is_read_by_the_version_before_and_names_are_found_again(tmp_path: Path) -> None:
    directory, record = guest(tmp_path, network=NAMED)
    directory.path.mkdir()
    directory.save_order(record)
    assert "names" not in json.loads(directory.record_file.read_bytes())["network"]
    found = directory.load()
    assert found is not None
    assert directory.order_of(found) == NAMED
    directory.mark_releasing()
    leaving = directory.load()
    assert leaving is not None
    assert directory.order_of(leaving) == NAMED, "until the directory is wiped"


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b'["a b"]', b'["a", "b", "c"]', b"[1]", b"\xff", b"null"])
def test_damaged_names_leave_the_guest_its_network(tmp_path: Path, content: bytes) -> None:
    directory, record = guest(tmp_path, network=NAMED)
    directory.path.mkdir()
    directory.save_order(record)
    directory.names.write_bytes(content)
    found = directory.load()
    assert found is not None
    assert directory.order_of(found) == A1.order


def test_a_guest_without_names_has_no_file(tmp_path: Path) -> None:
    directory, record = guest(tmp_path, network=A1.order)
    directory.path.mkdir()
    directory.save_order(record)
    assert not directory.names.exists()
    assert isinstance(directory.order_of(record), NetworkOrder)
    alone, other = guest(tmp_path / "alone")
    alone.path.mkdir(parents=True)
    alone.save_order(other)
    assert (alone.order_of(other), alone.load()) == (None, other)
