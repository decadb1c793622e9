"""CHECK constraints of deploy systems and their tasks."""

from __future__ import annotations

import json

from tests.schema.checks import Check, one_of, whole_or_absent
from tests.support.rows import HASH, LATER, NOW, OTHER, Row

_TABLE, _TASKS = "deploy_systems", "deploy_tasks"
_USED: Row = {"used_at": NOW, "key_sha256": HASH, "csr_pem": "csr"}
_CERTIFICATE: Row = {"serial": "01", "pem": "pem", "not_after": LATER, "authority_key_sha256": HASH}
_QUOTE: Row = {"attestation_secret": HASH, "quote": b"q", "quote_signature": b"s"}
_HELLO: Row = {"hello_at": NOW, "hello": "{}"}
_ENDED: Row = {"ended_at": NOW, "ended_by": "superseded"}
_ISSUED: Row = {"task_id": OTHER, "issued_at": NOW}
_OVER: Row = {"ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
_COMPLETED: Row = {**_OVER, **_ISSUED, "outcome": "completed", "result": "{}"}
_FAILED: Row = {**_OVER, "outcome": "failed", "failure": "why"}
_RUN_OVER: Row = {**_OVER, "outcome": "completed"}
_RUN_FAILED: Row = {**_OVER, "outcome": "failed", "failure": "why"}
_SHORT = b"\x01" * 31

CHECKS = {
    "deploy_epoch_is_positive": Check(_TABLE, ({"deploy_epoch": 0},), ({"deploy_epoch": 1},)),
    "deploy_token_is_sha256": Check(_TABLE, ({"token_hash": _SHORT},), ({},)),
    "deploy_system_has_macs": Check(_TABLE, ({"macs": []}, {"macs": ["m"] * 65}), ({}, {"macs": ["m"] * 64})),
    "deploy_certificate_is_short": Check(
        _TABLE, ({"certificate_seconds": 59}, {"certificate_seconds": 606_601}), ({"certificate_seconds": 606_600},)
    ),
    "deploy_system_end": Check(
        _TABLE, ({"ended_by": "over"},), ({}, {"ended_by": "revoked"}, {"ended_by": "handed_over"})
    ),
    "deploy_key_is_sha256": Check(_TABLE, ({**_USED, "key_sha256": _SHORT},), ({}, _USED)),
    "deploy_authority_is_sha256": Check(
        _TABLE, ({**_USED, **_CERTIFICATE, "authority_key_sha256": _SHORT},), ({**_USED, **_CERTIFICATE},)
    ),
    "deploy_hello_is_bounded": Check(
        _TABLE,
        ({**_USED, **_CERTIFICATE, "hello_at": NOW, "hello": '"' + "x" * 4095 + '"'},),
        ({**_USED, **_CERTIFICATE, "hello_at": NOW, "hello": '"' + "x" * 4094 + '"'},),
    ),
    "deploy_statement_is_bounded": Check(
        _TABLE, ({"wipe_statement": '"' + "x" * 69_631 + '"'},), ({}, {"wipe_statement": '"' + "x" * 69_630 + '"'})
    ),
    "deploy_system_end_is_whole": Check(
        _TABLE, ({"ended_at": None}, {"ended_by": None}), ({}, {"ended_at": None, "ended_by": None})
    ),
    "deploy_system_use_is_whole": Check(_TABLE, whole_or_absent(_USED), ({}, _USED)),
    "deploy_certificate_is_whole": Check(
        _TABLE, tuple({**_USED, **part} for part in whole_or_absent(_CERTIFICATE)), (_USED, {**_USED, **_CERTIFICATE})
    ),
    "deploy_certificate_was_requested": Check(
        _TABLE, (_CERTIFICATE, {**_USED, **_CERTIFICATE, "refusal": "no"}), ({**_USED, "refusal": "no"},)
    ),
    "deploy_quote_is_complete": Check(_TABLE, whole_or_absent(_QUOTE), ({}, _QUOTE)),
    "deploy_hello_is_certified": Check(
        _TABLE,
        (_HELLO, {**_USED, **_HELLO}, *({**_USED, **_CERTIFICATE, **part} for part in whole_or_absent(_HELLO))),
        ({**_USED, **_CERTIFICATE, **_HELLO},),
    ),
    "deploy_task_type": Check(
        _TASKS,
        ({"type": "metal.burn"},),
        ({}, {"type": "metal.wipe"}, {"type": "metal.deploy"}, {"type": "metal.rescue"}),
    ),
    "deploy_parameters_are_bounded": Check(
        _TASKS, ({"parameters": '"' + "x" * 131_071 + '"'},), ({"parameters": '"' + "x" * 131_070 + '"'},)
    ),
    "deploy_task_is_bounded": Check(
        _TASKS, ({"seconds_max": 59}, {"seconds_max": 604_801}), ({"seconds_max": 604_800},)
    ),
    "deploy_task_outcome": Check(
        _TASKS, ({**_FAILED, "outcome": "lost"},), ({}, _FAILED, _COMPLETED, {**_FAILED, "outcome": "not_run"})
    ),
    "deploy_failure_is_bounded": Check(
        _TASKS, ({**_FAILED, "failure": "x" * 501},), ({**_FAILED, "failure": "x" * 500},)
    ),
    "deploy_task_is_whole": Check(_TASKS, whole_or_absent(_ISSUED), ({}, _ISSUED)),
    "deploy_task_end_is_whole": Check(_TASKS, ({**_FAILED, "ended_at": None}, {"ended_at": NOW}), ({}, _FAILED)),
    "deploy_task_failed_why": Check(
        _TASKS,
        ({"failure": "w"}, {**_FAILED, "failure": None}, {**_COMPLETED, "failure": "w"}),
        ({}, _FAILED, _COMPLETED),
    ),
    "deploy_task_waits": Check(
        _TASKS, ({"waits_for": None}, {"waits_until": None}, {**_FAILED, "waits_for": "worker"}), ({}, _FAILED)
    ),
    "deploy_task_is_proven": Check(
        _TASKS,
        ({**_COMPLETED, "result": None}, {**_COMPLETED, "task_id": None, "issued_at": None}),
        (_COMPLETED,),
    ),
    "machine_firmware_is_bounded": Check(
        "node_machines", ({"firmware": '"' + "x" * 65_535 + '"'},), ({}, {"firmware": '"' + "x" * 65_534 + '"'})
    ),
    "machine_bmc_firmware_is_bounded": Check(
        "node_machines",
        ({"bmc_firmware": '"' + "x" * 131_071 + '"'},),
        ({}, {"bmc_firmware": '"' + "x" * 131_070 + '"'}),
    ),
    "firmware_vendor_is_bounded": Check(
        "firmware_lists", ({"vendor": ""}, {"vendor": "x" * 65}), ({"vendor": "x"}, {"vendor": "x" * 64})
    ),
    "firmware_product_is_bounded": Check(
        "firmware_lists", ({"product": ""}, {"product": "x" * 65}), ({"product": "x"}, {"product": "x" * 64})
    ),
    "firmware_list_is_bounded": Check(
        "firmware_lists", ({"components": '"' + "x" * 262_143 + '"'},), ({"components": '"' + "x" * 262_142 + '"'},)
    ),
    "deploy_run_kind": one_of("deploy_runs", "kind", "inspect", "wipe", "deploy", "stop", "start", "reboot", "rescue"),
    "deploy_run_step": one_of(
        "deploy_runs",
        "step",
        "power_off",
        "to_provisioning",
        "start",
        "work",
        "eject",
        "end",
        "to_tenant",
        "power_on",
        "reach",
        "rotate",
    ),
    "deploy_run_isolation": one_of("deploy_runs", "isolation", "none", "vlan"),
    "deploy_run_findings_are_bounded": Check(
        "deploy_runs", ({"findings": '"' + "x" * 65_535 + '"'},), ({"findings": '"' + "x" * 65_534 + '"'},)
    ),
    "deploy_run_medium_is_bounded": Check(
        "deploy_runs", ({"medium": json.dumps({"a": "x" * 16384})},), ({"medium": json.dumps({"a": "x" * 16000})},)
    ),
    "deploy_run_owner_is_whole": Check(
        "deploy_runs",
        whole_or_absent({"task_id": OTHER, "allocation_id": OTHER, "claim_id": 1}),
        ({}, {"task_id": OTHER, "allocation_id": OTHER, "claim_id": 1}),
    ),
    "deploy_run_parameters_are_bounded": Check(
        "deploy_runs", ({"parameters": '"' + "x" * 131_071 + '"'},), ({"parameters": '"' + "x" * 131_070 + '"'},)
    ),
    "deploy_run_is_bounded": Check(
        "deploy_runs", ({"work_seconds": 59}, {"work_seconds": 604_801}), ({"work_seconds": 604_800},)
    ),
    "deploy_run_outcome": Check(
        "deploy_runs",
        ({**_RUN_OVER, "outcome": "lost"},),
        ({}, _RUN_OVER, {**_RUN_OVER, "outcome": "stopped"}, _RUN_FAILED),
    ),
    "deploy_run_failure_is_bounded": Check(
        "deploy_runs", ({**_RUN_FAILED, "failure": "x" * 501},), ({**_RUN_FAILED, "failure": "x" * 500},)
    ),
    "deploy_run_stop_is_whole": Check(
        "deploy_runs",
        ({"stop_requested_at": NOW}, {"stop_requested_by": "a"}),
        ({}, {"stop_requested_at": NOW, "stop_requested_by": "a"}),
    ),
    "deploy_run_permission_is_whole": Check(
        "deploy_runs",
        ({"deploy_epoch": 1}, {"deploy_task_id": OTHER}),
        ({}, {"deploy_epoch": 1, "deploy_task_id": OTHER}),
    ),
    "deploy_run_end_is_whole": Check(
        "deploy_runs", ({"ended_at": NOW}, {**_RUN_OVER, "ended_at": None}), ({}, _RUN_OVER)
    ),
    "deploy_run_waits": Check(
        "deploy_runs", ({"waits_for": None}, {"waits_until": None}, {**_RUN_OVER, "waits_for": "x"}), ({}, _RUN_OVER)
    ),
    "deploy_run_failed_why": Check(
        "deploy_runs",
        ({**_RUN_OVER, "failure": "f"}, {**_RUN_FAILED, "failure": None}),
        ({}, {"failure": "f"}, _RUN_OVER, _RUN_FAILED),
    ),
}
