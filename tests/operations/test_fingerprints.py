"""The fingerprint of each kind of request is recorded: a retry across an upgrade must find the record of its key (P4)."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, RootModel

import orchestrator
from orchestrator.allocations.schemas import ChangeAllocation, ConsumeReservation, CreateAllocation
from orchestrator.http.fields import Request, Variant
from orchestrator.http.operation_keys import operation_in
from orchestrator.reservations.schemas import HoldGpus, HoldNamed
from orchestrator.tenants.principals import Principal

CALLER = Principal("member", uuid.UUID(int=1), uuid.UUID(int=2))
ID = "00000000-0000-4000-8000-00000000000a"
TIME = "2030-01-02T03:04:05Z"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"
WHY = {"reason": "maintenance"}
PLACE: dict[str, Any] = {"sku": "h100.slice", "gpus": 2, "region": "eu-1"}
TEMPLATE = {"image": "ubuntu", "ssh_key_ids": [ID], "name": "n", "labels": {"a": "b"}, "user_data": "#!"}
HELD = {"holder_id": "h", "starts_at": TIME, "ends_at": TIME, "ttl_seconds": 60, "name": "n"}
PARTS = {
    "AcceptInvitation",  # its token is used once, without an operation
    "_Hold", "StartedAllocation", "Nothing", "PointRead", "RangeRead", "WriteKey", "DeleteKey", "DeleteRange",
    "PutImageStatement", "TaskOrder", "SealedPassword", "SealedCopy", "DeployNetwork", "AdoptedConnection", "AcceptedFirmware",
    "SwitchPort", "FirmwareImage",
}  # fmt: skip
"""Parts of bodies, and the body without members."""

MINIMAL: list[tuple[str, dict[str, Any], str]] = [
    ("CreateAllocation", {**PLACE, "ssh_key_ids": [ID]}, "7ceabadc72a32267"),
    ("ConsumeReservation", {"reservation_id": ID, "holder_id": "h", "ssh_key_ids": [ID]}, "7f6e3a6c1078aaf0"),
    ("HoldNamed", {"holder_id": "h", "resources": ["seat-1"]}, "b6f0fe4686c1dce0"),
    ("HoldGpus", {"holder_id": "h", **PLACE, "allocation": {"ssh_key_ids": [ID]}}, "271b49bf2ce60fa7"),
    ("ByHolder", {"holder_id": "h"}, "2f6a876e85c88676"),
    ("ChangeAllocation", {"name": "n"}, "79727c6480c13460"),
    ("ChangeNode", {"half_slots": 4}, "5ffb575b6517f7c8"),
    ("ForceCleanup", {"runtime_verified_absent": True, **WHY}, "9d533226402a4b2a"),
    ("ForceRelease", WHY, "66e3cabea70efb7d"),
    ("CreateResource", {"id": "seat-1"}, "dbd9d56e8230c933"),
    ("TakeOutOfService", WHY, "66e3cabea70efb7d"),
    ("CommitTransaction", {"operations": [{"type": "delete", "key": "YQ=="}]}, "4798466604db9b04"),
    ("ForgetConsumer", WHY, "66e3cabea70efb7d"),
    ("DiscardDeadLetter", WHY, "66e3cabea70efb7d"),
    ("PutRetentionPolicy", {"prevent_truncate": 7}, "9d1d25d0f1171b2d"),
    ("SetBalancePolicy", {"prepaid": True}, "8bfa0a87f3dc0622"),
    ("TopUp", {"amount_micro_units": 5}, "5acf697b6fbfe2b3"),
    ("Withdraw", {"amount_micro_units": 5, "reference": "r"}, "70664d823d2c6d3b"),
    ("PutRegion", {"display_name": "Europe"}, "d6aa415d1e080d23"),
    ("PutSku", {"shape": "gpu_slice", "gpu_model": "H100", "allowed_counts": [1, 2]}, "6619528572c240c8"),
    ("PutImage", {"url": "https://x.example/y", "sha256": "ab" * 32, "shapes": ["gpu_slice"]}, "588778ba8722546c"),
    (
        "CreateNode",
        {"name": "n1", "region": "eu-1", "gpu_model": "H100", "shape": "gpu_slice", "slot_count": 8},
        "268d22c167601b1d",
    ),
    ("CreateEnrolmentToken", {}, "eb3a9f1a7592619f"),
    ("RevokeCertificates", WHY, "66e3cabea70efb7d"),
    ("DrainNode", {}, "eb3a9f1a7592619f"),
    ("RetireNode", WHY, "66e3cabea70efb7d"),
    ("SetAttestation", {"policy": "off"}, "dfc479594f3379c4"),
    ("SetPoolAttestation", {"policy": "off"}, "dfc479594f3379c4"),
    ("AdoptOrphan", WHY, "66e3cabea70efb7d"),
    ("DestroyOrphan", WHY, "66e3cabea70efb7d"),
    ("QuarantineSlot", WHY, "66e3cabea70efb7d"),
    ("RequestBurnIn", {"slot": 3}, "765328a5606cb8f2"),
    ("ReportFault", {"symptom": "slow", "evidence": "e"}, "c87ae35d203c1a47"),
    ("OpenRepair", {"serial": "S-0001", "reason": "r"}, "34354ddcede85eb9"),
    ("CloseRepair", {"result": "r"}, "c3aaa83d2000c25e"),
    ("ReturnSlot", {"note": "n"}, "b8562cef3ed8d7ec"),
    ("ApproveTopology", {"digest": "ab" * 32}, "4f0a7830c10a06f8"),
    ("CreateTenant", {"name": "t"}, "6c68e0aebf839c56"),
    ("ChangeTenant", {"state": "suspended"}, "e3687add7817465d"),
    ("SetQuota", {"gpus_limit": None}, "8444f44b93e5914d"),
    ("CreateApiKey", {"name": "k", "role": "tenant", "tenant_id": ID}, "448c0ef4b43a25b7"),
    ("CreateApiKey", {"name": "k", "role": "admin"}, "d2e06686cebb7e03"),
    ("CreateOwnApiKey", {"name": "k", "role": "viewer"}, "d5ac986bc2823dd9"),
    ("CreateInvitation", {"role": "viewer"}, "bd240214e7782029"),
    ("SetMemberRole", {"role": "viewer"}, "bd240214e7782029"),
    ("RotateApiKey", {}, "eb3a9f1a7592619f"),
    ("Approve", {}, "eb3a9f1a7592619f"),
    ("Reject", WHY, "66e3cabea70efb7d"),
    ("CommitMaintenance", {"resources": ["node:x"], "starts_at": TIME, "ends_at": TIME, **WHY}, "3aa437ee2ca28798"),
    ("AddSshKey", {"name": "k", "public_key": SSH_KEY}, "440994e141f53c29"),
    ("CreateWebhook", {"url": "https://x.example/y"}, "5e0ac9baf5c518e2"),
    ("ChangeWebhook", {}, "eb3a9f1a7592619f"),
    ("RotateWebhook", {}, "eb3a9f1a7592619f"),
    ("ReplayDeliveries", {"since": TIME}, "0d4dad2adcb91207"),
    ("CreateSite", {"name": "s", "recovery_key": "ab" * 32}, "f8bf24e170ee013f"),
    ("InviteAgent", {"name": "a"}, "9ea52f6c73bac71d"),
    (
        "PermitDeploySystem",
        {"network": {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24"}},
        "10a0325465d4e910",
    ),
    ("InspectMachine", {}, "eb3a9f1a7592619f"),
    ("RevokeAgent", WHY, "66e3cabea70efb7d"),
    ("RunDeploySystem", {}, "eb3a9f1a7592619f"),
    (
        "PutFirmwareList",
        {"vendor": "v", "product": "p", "components": [{"component": "bios", "versions": ["1"]}]},
        "669f466bda5b3581",
    ),
    ("AcceptAttestation", {"attestation_id": ID}, "4fd054da681a4827"),
    ("SwitchMachine", {"verb": "off"}, "7c7e29f2fe2de3ee"),
    (
        "PutSegments",
        {"provisioning_vlan": 100, "first_tenant_vlan": 1000, "last_tenant_vlan": 1999},
        "f7c20aa15ac2bb95",
    ),
    ("PutPorts", {"ports": []}, "7bf1fa66ff6844ac"),
    ("MovePorts", {"to": "check"}, "91b3f736509eed80"),
    (
        "PutBmc",
        {"site_id": ID, "url": "https://192.0.2.7", "certificate_sha256": "ab" * 32, "username": "root"},
        "320036bd5ee9efe0",
    ),
    (
        "AdoptMachine",
        {
            "tenant_id": ID,
            "sku": "h100.metal",
            "ssh_key_ids": [ID],
            "connection": {"host": "192.0.2.7", "user": "root", "host_key": "ssh-ed25519 AAAA"},
            "network": {"mac": "02:00:00:00:00:01", "address": "192.0.2.7/24"},
        },
        "ca887dae4178a4c9",
    ),
]
"""Each kind of request with its required members, and the first digits of its digest."""

COMPLETE: list[tuple[type[Request], dict[str, Any], str]] = [
    (CreateAllocation, {**PLACE, **TEMPLATE, "ends_at": TIME}, "43d5a3a813aaa5b4"),
    (ConsumeReservation, {"reservation_id": ID, "holder_id": "h", "sku": "h100.slice", **TEMPLATE}, "812396b0ec9da1fe"),
    (ChangeAllocation, {"name": "n", "labels": {"a": "b"}, "ends_at": TIME}, "429bafbc30816e45"),
    (ChangeAllocation, {"name": "n", "ends_at": None}, "ac7d6b65a3fe04b3"),
    (HoldNamed, {**HELD, "resources": ["seat-1"]}, "f39349035e042b84"),
    (HoldGpus, {**HELD, **PLACE, "count": 2, "allocation": TEMPLATE}, "bc12ecb6ae957ebd"),
]


@functools.cache
def bodies() -> dict[str, type[BaseModel]]:
    """Every type of a request body, by its name."""
    for found in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if found.name.endswith("schemas"):
            importlib.import_module(found.name)
    types = [*_below(Request), *_below(Variant)]
    assert len({kind.__name__ for kind in types}) == len(types)
    return {kind.__name__: kind for kind in types}


def _below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("orchestrator."):
            yield below
            yield from _below(below)


def digest(body: BaseModel | None, method: str = "POST", path: str = "/api/v1/x", query: str = "") -> str:
    """The first digits of the fingerprint."""
    scope = {"method": method, "path": path, "query_string": query.encode(), "state": {"request_id": None}}
    return operation_in(scope, CALLER, "k", body, 60.0).fingerprint.hex()[:16]


def test_every_kind_of_request_is_recorded() -> None:
    assert bodies().keys() - PARTS == {name for name, _, _ in MINIMAL}


@pytest.mark.parametrize(("name", "body", "recorded"), MINIMAL, ids=[name for name, _, _ in MINIMAL])
def test_the_digest_of_a_minimal_request_never_changes(name: str, body: dict[str, Any], recorded: str) -> None:
    assert digest(bodies()[name].model_validate(body)) == recorded


@pytest.mark.parametrize(("kind", "body", "recorded"), COMPLETE, ids=[kind.__name__ for kind, _, _ in COMPLETE])
def test_the_digest_of_a_complete_request_never_changes(
    kind: type[Request], body: dict[str, Any], recorded: str
) -> None:
    assert digest(kind.model_validate(body)) == recorded


def test_method_path_query_and_an_empty_body_have_recorded_digests() -> None:
    assert digest(None) == "043abafb4925c64b"
    assert digest(None, "DELETE", "/api/v1/ssh-keys/1") == "2cca587194dbc1a4"
    assert digest(None, query="tenant_id=1") == "ac7ba058527c2194"


@pytest.mark.parametrize(("name", "body", "recorded"), MINIMAL, ids=[name for name, _, _ in MINIMAL])
def test_a_new_optional_member_leaves_the_digest_as_it_was(name: str, body: dict[str, Any], recorded: str) -> None:
    class Newer(bodies()[name]):  # type: ignore[misc]
        purpose: str | None = None
        priority: int = 3

    assert digest(Newer.model_validate(body)) == recorded
    assert digest(Newer.model_validate({**body, "purpose": "training"})) != recorded


def test_an_explicit_null_is_the_same_content_as_an_absent_member() -> None:
    (_, body, recorded) = MINIMAL[0]
    assert digest(CreateAllocation.model_validate({**body, "image": None, "ends_at": None, "labels": {}})) == recorded


def test_a_null_within_free_json_is_content() -> None:
    assert digest(RootModel[Any]({"a": None})) != digest(RootModel[Any]({}))
