"""The seed, read as cloud-init would: nothing that a tenant sends breaks out of its place."""

from __future__ import annotations

import email
import io
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

pycdlib = pytest.importorskip("pycdlib", reason="the packages of requirements-libvirt.lock are not installed")

from node_agent.drivers.libvirt.channel import first_boot_of  # noqa: E402 - after the skip
from node_agent.drivers.libvirt.seed import Seed, write_seed  # noqa: E402 - after the skip
from node_agent.drivers.ssh import new_host_key  # noqa: E402 - after the skip
from node_agent.wire.first_boot import FirstBootStatus  # noqa: E402 - after the skip
from node_agent.wire.networks import NetworkOrder  # noqa: E402 - after the skip
from tests.drivers.bridged_harness import network_of  # noqa: E402 - after the skip

pytestmark = pytest.mark.hardware
PRIVATE, PUBLIC = new_host_key()


def seed(**changes: Any) -> Seed:
    """A seed with some of it changed."""
    values = {
        "instance_id": "7c0e", "hostname": "guest", "user": "tenant", "ssh_public_keys": ["ssh-ed25519 AAAA a"],
        "host_key_private": PRIVATE.decode(), "host_key_public": PUBLIC, "nonce": "00ff", "user_data": None, **changes,
    }  # fmt: skip
    return Seed(**values)


def files_of(path: Path) -> dict[str, bytes]:
    """The files of the volume."""
    volume, found = pycdlib.PyCdlib(), {}
    volume.open(str(path))
    for name in ("meta-data", "user-data", "vendor-data"):
        content = io.BytesIO()
        volume.get_file_from_iso_fp(content, rr_path=f"/{name}")
        found[name] = content.getvalue()
    assert volume.pvd.volume_identifier.decode().strip() == "cidata"
    volume.close()
    return found


def platforms_part(vendor_data: bytes) -> tuple[dict[str, Any], str]:
    """The configuration and the script, as cloud-init takes the message apart."""
    parts = [part for part in email.message_from_bytes(vendor_data).walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["text/cloud-config", "text/cloud-boothook"]
    config, script = (str(part.get_payload()) for part in parts)
    return yaml.safe_load(config), script


def test_the_volume_is_private_and_says_what_the_guest_is(tmp_path: Path) -> None:
    path = tmp_path / "seed.iso"
    write_seed(path, seed(user_data="#!/bin/sh\necho hello\n"))
    assert path.stat().st_mode & 0o777 == 0o600
    found = files_of(path)
    assert found["user-data"] == b"#!/bin/sh\necho hello\n"
    assert yaml.safe_load(found["meta-data"]) == {
        "instance-id": "7c0e", "local-hostname": "guest", "berth-nonce": "00ff", "public-keys": ["ssh-ed25519 AAAA a"],
    }  # fmt: skip
    said, script = platforms_part(found["vendor-data"])
    assert said["ssh_keys"] == {"ed25519_private": PRIVATE.decode(), "ed25519_public": PUBLIC}
    assert said["users"][0]["ssh_authorized_keys"] == ["ssh-ed25519 AAAA a"]
    assert said["ssh_pwauth"] is False
    assert 'echo "BERTH-READY 00ff"' in script


def test_the_boothook_installs_the_script_that_runs_at_each_boot(tmp_path: Path) -> None:
    """cloud-init 22.4 runs no per-boot script that is a part of vendor data."""
    write_seed(tmp_path / "seed.iso", seed(nonce="00ff"))
    hook = platforms_part(files_of(tmp_path / "seed.iso")["vendor-data"])[1].replace("/var/lib/cloud", str(tmp_path))
    for _ in range(2):  # at each boot
        subprocess.run(["sh"], input=hook, text=True, check=True)
    script = tmp_path / "scripts" / "per-boot" / "berth-ready"
    assert script.stat().st_mode & 0o777 == 0o700
    port = tmp_path / "port"
    status = tmp_path / "cloud-init"
    status.write_text(
        '#!/bin/sh\n[ "$2" = --wait ] && exit 1\nprintf "status: error\\ndetail:\\n\\tr\\033un\\n"; exit 1\n'
    )
    status.chmod(0o700)
    # A file is the port here, and each message is appended to it. The repetitions do not wait.
    text = script.read_text().replace("/dev/virtio-ports/berth.ready", str(port)).replace("[ -c ", "[ -f ")
    text = text.replace('>"$port"', '>>"$port"').replace("sleep $pause", ":").replace(" &\n", "\n")
    port.touch()
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input=text, text=True, check=True, env=environment)
    ended = "BERTH-USER-DATA 00ff 1 status: error detail:  run"
    assert port.read_text().splitlines() == ["BERTH-READY 00ff", ended, ended, ended]
    found = first_boot_of(ended, "00ff")
    assert found is not None
    assert found.status is FirstBootStatus.ERROR


def test_a_seed_for_an_image_without_cloud_init_holds_no_host_key(tmp_path: Path) -> None:
    path = tmp_path / "seed.iso"
    write_seed(path, seed(host_key_private=None, host_key_public="", user="debian"))
    found = files_of(path)
    assert yaml.safe_load(found["vendor-data"]) == {}
    assert yaml.safe_load(found["meta-data"])["public-keys"] == ["ssh-ed25519 AAAA a"]


def test_a_guest_of_a_tenant_network_gets_its_address_from_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "seed.iso"
    write_seed(path, seed())
    assert not has_network_config(path), "by default the guest uses DHCP"
    order = NetworkOrder.model_validate(network_of(2))
    write_seed(path, seed(network=order))
    plain = network_config(path)
    write_seed(path, seed(network=order, network_mtu=1450))
    spanned = network_config(path)
    assert spanned["ethernets"]["tenant"].pop("mtu") == 1450
    assert spanned == plain
    write_seed(path, seed(network=order, network_domain="x.test"))
    named = network_config(path)
    assert named["ethernets"]["tenant"].pop("nameservers") == {"addresses": ["10.67.7.1"], "search": ["x.test"]}
    assert named == plain
    assert plain == {
        "version": 2,
        "ethernets": {
            "tenant": {
                "match": {"macaddress": order.mac}, "dhcp4": False, "dhcp6": False, "accept-ra": False, "link-local": [],
                "addresses": ["10.67.7.12/24"], "routes": [{"to": "0.0.0.0/0", "via": "10.67.7.1"}],
            }
        },
    }  # fmt: skip


def network_config(path: Path) -> Any:
    """The volume's network configuration."""
    volume, content = pycdlib.PyCdlib(), io.BytesIO()
    volume.open(str(path))
    volume.get_file_from_iso_fp(content, rr_path="/network-config")
    volume.close()
    return yaml.safe_load(content.getvalue())


def has_network_config(path: Path) -> bool:
    """Whether the volume has a network configuration."""
    volume = pycdlib.PyCdlib()
    volume.open(str(path))
    names = {child.rock_ridge.name() for child in volume.list_children(rr_path="/") if child.rock_ridge is not None}
    volume.close()
    return b"network-config" in names


@given(
    hostname=st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    keys=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), min_size=1, max_size=3),
    user_data=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=2000),
)
def test_nothing_that_a_tenant_sends_changes_the_platforms_part(
    tmp_path_factory: pytest.TempPathFactory, hostname: str, keys: list[str], user_data: str
) -> None:
    path = tmp_path_factory.mktemp("seed") / "seed.iso"
    write_seed(path, seed(hostname=hostname, ssh_public_keys=keys, user_data=user_data))
    found = files_of(path)
    assert found["user-data"] == user_data.encode()
    meta = yaml.safe_load(found["meta-data"])
    assert (meta["local-hostname"], meta["public-keys"], meta["berth-nonce"]) == (hostname, keys, "00ff")
    said, _ = platforms_part(found["vendor-data"])
    assert [user["name"] for user in said["users"]] == ["tenant"]
    assert said["users"][0]["ssh_authorized_keys"] == keys


@pytest.mark.parametrize("user", ["null", "true", "no", "on", "off", "root", "debian"])
def test_a_login_user_is_a_name_whatever_yaml_makes_of_the_word(tmp_path: Path, user: str) -> None:
    write_seed(tmp_path / "seed.iso", seed(user=user))
    said, _ = platforms_part(files_of(tmp_path / "seed.iso")["vendor-data"])
    assert [one["name"] for one in said["users"]] == [user]
