"""`berth firmware` against a real API: from an inspection to a list, its replacement and removal, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.calling import fresh, new_place
from tests.client.deployment import Deployment
from tests.support.shell import ID, Shell, bare, deployment

__all__ = ["bare", "deployment"]

INSPECTED = """
with machine as (
    insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at, firmware, bmc_firmware)
    select id, gen_random_uuid(), '{02:00:00:00:00:01}', jsonb_build_object('smbios_uuid', gen_random_uuid(), 'topology',
        jsonb_build_object('driver', 'redfish', 'processors', jsonb_build_object('architecture', 'x86_64'), 'firmware',
            jsonb_build_object('vendor', 'Contoso', 'product', cast(%s as text)))),
        clock_timestamp(), cast(%s as jsonb), cast(%s as jsonb)
    from nodes where name = %s returning node_id)
insert into deploy_systems (node_id, deploy_epoch, smbios_uuid, macs, token_hash, expires_at, permitted_by, tpm_required,
                            certificate_seconds)
select node_id, 1, gen_random_uuid(), '{02:00:00:00:00:01}', sha256(node_id::text::bytea), clock_timestamp(), 'test', false, 60
from machine
"""
READ = [
    {"component": "bios", "unit": "smbios", "model": "Contoso", "version": "2.19.1"},
    {"component": "disk", "unit": "S1", "model": "Fast 1", "version": "B"},
    {"component": "disk", "unit": "S2", "model": "Fast 1", "version": "A"},
]
NAMED = [{"component": "bmc", "unit": "BMC", "model": "X", "version": "7.00"}]
COMPONENTS = [
    {"component": "bios", "versions": ["2.19.1"]}, {"component": "disk", "model": "Fast 1", "versions": ["A", "B"]},
    {"component": "bmc", "versions": ["7.00"]},
]  # fmt: skip


@pytest.fixture
def shell(deployment: Deployment) -> Shell:
    return Shell(deployment.address, deployment.admin.key)


def test_what_an_inspection_read_becomes_the_list_of_its_model(
    shell: Shell, deployment: Deployment, tmp_path: Path
) -> None:
    node, product = str(new_place(deployment.admin, deployment.database).node["name"]), fresh("rack")
    shell.refused(f"firmware show {node}", "not_found")
    deployment.database.execute(INSPECTED, (product, json.dumps(READ), json.dumps(NAMED), node))
    read = shell.json(f"firmware show {node}")
    assert read == {"vendor": "Contoso", "product": product, "components": COMPONENTS}
    file = tmp_path / "list.json"
    file.write_text(json.dumps(read))
    made = shell.json(f"firmware put {file}")
    shown = [{name: value for name, value in one.items() if value is not None} for one in made["components"]]
    assert shown == COMPONENTS
    file.write_text(json.dumps({**read, "components": COMPONENTS[:1]}))
    again = shell.json(f"firmware put {file}")
    assert (again["id"], len(again["components"])) == (made["id"], 1), "the list of the model is replaced"
    assert [one["id"] for one in shell.json("firmware list")["items"] if one["product"] == product] == [made["id"]]
    assert shell.run(f"firmware remove {made['id']}").exit_code == 0
    shell.refused(f"firmware remove {made['id']}", "not_found")


@pytest.mark.parametrize(
    ("content", "code", "exit_code"),
    [
        ("{", "usage", 2),
        ("[]", "usage", 2),
        ('{"vendor": "V", "product": "P"}', "usage", 2),
        ('{"vendor": "V", "product": "P", "components": [1]}', "usage", 2),
        ('{"vendor": "V", "product": "P", "components": []}', "invalid", 1),
        ('{"vendor": " V", "product": "P", "components": [{"component": "bios", "versions": ["1"]}]}', "invalid", 1),
        ('{"vendor": "V", "product": "P", "components": [{"component": "fan", "versions": ["1"]}]}', "invalid", 1),
        ('{"vendor": "V", "product": "P", "components": [{"component": "bios", "versions": []}]}', "invalid", 1),
    ],
)
def test_what_is_no_list_is_refused(shell: Shell, tmp_path: Path, content: str, code: str, exit_code: int) -> None:
    file = tmp_path / "list.json"
    file.write_text(content)
    assert shell.refused(f"firmware put {file}", code, exit_code)


def test_what_does_not_exist_is_not_found(shell: Shell, tmp_path: Path) -> None:
    assert ID in shell.refused(f"firmware remove {ID}", "not_found")
    assert "cannot be read" in shell.refused(f"firmware put {tmp_path / 'none'}", "usage", 2)
