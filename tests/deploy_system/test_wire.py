"""What is on a medium and what travels between a deploy system and the control plane: bounds, tolerance, round trips."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from node_agent.wire.deploy_enrolment import DeployResultReport, MachineProof
from node_agent.wire.deploy_medium import MEDIUM_BYTES_MAX, DeployMedium, MediumInvalid, MediumNetwork, read_medium
from node_agent.wire.deploy_tasks import (
    DiskIdentity,
    MetalDiskWipe,
    MetalWipeParameters,
    WipeAttempt,
)

TOKEN = "deploy1." + "a" * 43


def medium(**changes: Any) -> DeployMedium:
    values: dict[str, Any] = {
        "node_id": UUID(int=7), "deploy_epoch": 3, "api_url": "https://api.example:443", "ca_pem": "x" * 3_000,
        "node_api_url": "https://nodes.example:8443", "token": TOKEN, "expires_at": datetime(2026, 1, 1, tzinfo=UTC),
        "network": {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24", "gateway": "192.0.2.1"},
    }  # fmt: skip
    return DeployMedium.model_validate({**values, **changes})


def test_a_medium_is_read_back_as_written_and_fills_its_file() -> None:
    written = medium().written()
    assert len(written) == MEDIUM_BYTES_MAX
    assert read_medium(written) == medium()


def test_a_member_of_a_newer_control_plane_is_passed_over() -> None:
    document = {**json.loads(medium().written()), "later": [1, 2]}
    assert read_medium(json.dumps(document).encode()) == medium()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 5_000, "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'"text"', "not usable"),
        (b"{}" + b" " * MEDIUM_BYTES_MAX, "at most 8192"),
        (b'{"berth-config-placeholder": true}', "not made for one machine"),
        (b'{"version": 2}', "version"),
    ],
)
def test_an_unusable_configuration_says_why(content: bytes, why: str) -> None:
    with pytest.raises(MediumInvalid, match=why):
        read_medium(content)


def test_the_error_of_a_medium_repeats_no_secret() -> None:
    document = {**json.loads(medium().written()), "token": "secret-in-the-wrong-form"}
    with pytest.raises(MediumInvalid) as refused:
        read_medium(json.dumps(document).encode())
    assert "secret-in-the-wrong-form" not in str(refused.value)


@pytest.mark.parametrize(
    "network",
    [
        {"mac": "02:00:00:00:00:0", "address": "192.0.2.7/24"},
        {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24", "gateway": "198.51.100.1"},
        {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24", "gateway": "router"},
        {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24", "vlan": 4_095},
        {"mac": "02:00:00:00:00:01", "address": "192.0.2.300/24"},
    ],
)
def test_an_impossible_network_is_refused(network: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MediumNetwork.model_validate(network)


def test_a_configuration_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="a medium holds 8191"):
        medium(network={"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24"}, ca_pem="é" * 4_096).written()


def test_a_result_is_completed_or_failed_and_never_both() -> None:
    failure = {"code": "disk_missing", "detail": "disk S1 is not there"}
    DeployResultReport.model_validate({"fence": 1, "outcome": "failed", "failure": failure, "evidence": {"disks": []}})
    for wrong in (
        {"outcome": "completed"},
        {"outcome": "failed", "result": {}},
        {"outcome": "completed", "result": {}, "failure": failure},
        {"outcome": "completed", "result": {}, "evidence": {}},
        {"outcome": "completed", "result": {"text": "\x00"}},
    ):
        with pytest.raises(ValidationError):
            DeployResultReport.model_validate({"fence": 1, **wrong})


def test_a_machine_is_named_by_uuid_and_macs_in_one_spelling() -> None:
    MachineProof(smbios_uuid=str(UUID(int=1)), macs=["02:00:00:00:00:01"])
    for wrong in (str(UUID(int=1)).replace("-", ""), "0000000A-0000-0000-0000-000000000001"):
        with pytest.raises(ValidationError):
            MachineProof(smbios_uuid=wrong, macs=["02:00:00:00:00:01"])
    with pytest.raises(ValidationError):
        MachineProof(smbios_uuid=str(UUID(int=1)), macs=[])


def test_a_disk_counts_as_wiped_only_by_what_was_read() -> None:
    disk = MetalDiskWipe(
        serial="S1", size_bytes=4096, name="nvme0n1", attempts=[WipeAttempt(method="format", accepted=True)],
        method="format", read_bytes=4096, nonzero_bytes_found=False, markers_found=0,
    )  # fmt: skip
    assert disk.proven
    for change in ({"method": None}, {"read_bytes": 0}, {"nonzero_bytes_found": True}, {"markers_found": 1}):
        assert not disk.model_copy(update=change).proven
    unaccepted = disk.model_copy(update={"method": None})
    sent = unaccepted.model_dump_json(exclude_none=True)
    assert MetalDiskWipe.model_validate_json(sent) == unaccepted, "reports have no nulls"


def test_a_wipe_names_each_disk_once() -> None:
    disk = DiskIdentity(serial="S1", size_bytes=4096)
    with pytest.raises(ValidationError):
        MetalWipeParameters(deploy_epoch=1, disks=[disk, disk])
