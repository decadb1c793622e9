"""An agent with the rights of deploy/guests/berth-agent-network.conf starts name servers as a user apart, and ends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libvirt_driver.network.stage import staged, why_no_name_servers
from tests.libvirt_driver.service_rights import DEPLOY, DROP_IN, UNIT, setting

NETWORK_DROP_IN = DEPLOY / "guests" / "berth-agent-network.conf"
NET_BIND_SERVICE, NET_ADMIN = 1 << 10, 1 << 12


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that another user can traverse."""
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    made = tmp_path_factory.mktemp("names")
    for folder in (made, *made.parents):
        if folder.stat().st_uid == 0 and folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    return made


def test_the_rights_of_the_service_are_enough(directory: Path) -> None:
    given = [*setting("AmbientCapabilities", UNIT, DROP_IN), *setting("AmbientCapabilities", NETWORK_DROP_IN)]
    assert setting("CapabilityBoundingSet", NETWORK_DROP_IN) == setting("AmbientCapabilities", NETWORK_DROP_IN)
    found = staged("tests.libvirt_driver.network.naming.rights", str(directory), *given)
    assert (found["started"], found["again"], found["ended"]) == (True, False, [True, True])
    assert found["identity"] == [
        {
            "user": "dnsmasq", "capabilities": NET_BIND_SERVICE | NET_ADMIN, "ambient": NET_BIND_SERVICE | NET_ADMIN,
            "no new privileges": "1",
        }
    ]  # fmt: skip
