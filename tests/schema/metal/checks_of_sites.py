"""CHECK constraints of sites, their agents, and BMCs."""

from __future__ import annotations

from tests.schema.checks import Check, one_of, whole_or_absent
from tests.support.rows import HASH, LATER, NOW, OTHER

_NAMES = ({"name": ""}, {"name": "-a"}, {"name": "a-"}, {"name": "A"}, {"name": "a" * 64}, {"name": "a.b"})
_NAMED = ({"name": "a"}, {"name": "a" * 63}, {"name": "0-9"})
_LEASE = {"lease_agent": OTHER, "lease_run": OTHER, "lease_until": LATER}
_LOOK = {"power_state": "On", "inventory": "{}", "looked_at": NOW}
_ISSUED = {"fence": 7, "envelope": "{}", "issued_at": NOW}
_DISPATCHED = {"dispatched_at": NOW, "lease_fence": 1}
_NO_WAIT = {"waits_for": None, "waits_since": None, "waits_until": None}
_ENDED = {"ended_at": NOW, "outcome": "completed", **_NO_WAIT}
_FAILED = {**_ENDED, "outcome": "failed", "failure": "no_agent: x"}


def _bytes(table: str, column: str, **others: object) -> Check:
    return Check(table, ({column: HASH[:-1], **others}, {column: HASH + b"x", **others}), ({column: HASH, **others},))


_UPDATE = {"kind": "firmware"}
_LARGE = '"' + "x" * 131_072 + '"'

CHECKS = {
    "bmc_silence_is_bounded": Check("node_bmcs", ({"silent_because": "x" * 65},), ({"silent_because": "x" * 64}, {})),
    "site_name": Check("sites", _NAMES, _NAMED),
    "recovery_key_is_x25519": _bytes("sites", "recovery_key"),
    "site_lease_is_whole": Check("sites", whole_or_absent(_LEASE), ({}, _LEASE)),
    "site_agent_name": Check("site_agents", _NAMES, _NAMED),
    "site_agent_state": one_of("site_agents", "state", "registered", "active", "retired"),
    "sealing_key_is_x25519": _bytes("site_agents", "sealing_key", sealing_key_epoch=1),
    "sealing_key_has_epoch": Check("site_agents", ({"sealing_key": HASH}, {"sealing_key_epoch": 1}), ({},)),
    "site_agent_version_is_bounded": Check(
        "site_agents", ({"agent_version": "x" * 65},), ({"agent_version": "x" * 64},)
    ),
    "site_agent_token_is_sha256": _bytes("site_agent_tokens", "token_hash"),
    "site_agent_key_is_sha256": _bytes("site_agent_certificates", "key_sha256"),
    "site_agent_authority_is_sha256": _bytes("site_agent_certificates", "authority_key_sha256"),
    "site_agent_request_key_is_sha256": _bytes("site_agent_certificate_requests", "key_sha256"),
    "site_agent_issued_or_refused": Check(
        "site_agent_certificate_requests",
        ({"serial": "02", "refusal": "r"},),
        ({}, {"serial": "02"}, {"refusal": "r"}),
    ),
    "bmc_console_host_key": Check(
        "node_bmcs",
        tuple(
            {"console_host_key": key}
            for key in (
                "",
                "ssh-ed25519",
                "ssh-ed25519 A B",
                "ssh-dss AAAA",
                " ssh-rsa AAAA",
                "ssh-rsa AAAA\n",
                "ssh-rsa " + "A" * 2_048,
            )
        ),
        (
            {"console_host_key": None},
            {"console_host_key": "ssh-ed25519 AAAA=="},
            {"console_host_key": "ecdsa-sha2-nistp256 A+/"},
        ),
    ),
    "bmc_url": Check(
        "node_bmcs",
        tuple(
            {"url": url}
            for url in (
                "http://bmc",
                "https://",
                "https://a/b",
                "https://a b",
                "https://u@a",
                "https://a?b",
                "https://a#b",
            )
        ),
        ({"url": "https://[2001:db8::1]:8443"}, {"url": "https://" + "a" * 255}),
    ),
    "bmc_certificate_is_sha256": _bytes("node_bmcs", "certificate_sha256"),
    "bmc_username": Check(
        "node_bmcs", ({"username": ""}, {"username": "a b"}, {"username": "a" * 65}), ({"username": "a" * 64},)
    ),
    "bmc_system_id": Check(
        "node_bmcs", ({"system_id": ""}, {"system_id": "a b"}, {"system_id": "a" * 129}), ({}, {"system_id": "a" * 128})
    ),
    "bmc_generation_is_positive": Check("node_bmcs", ({"generation": 0},), ({"generation": 1},)),
    "bmc_pending_is_next": Check("node_bmcs", ({"pending_generation": 1},), ({}, {"pending_generation": 2})),
    "bmc_look_is_whole": Check("node_bmcs", whole_or_absent(_LOOK), ({}, _LOOK)),
    "sealed_is_bounded": Check("bmc_credentials", ({"sealed": ""}, {"sealed": "x" * 1025}), ({"sealed": "x" * 1024},)),
    "bmc_task_kind": one_of(
        "bmc_tasks",
        "kind",
        "look",
        "rotate",
        "reseal",
        "power_on",
        "power_off",
        "power_reset",
        "start_deploy",
        "end_deploy",
        "eject",
        "reach",
        "reset_bmc",
        "move_ports",
        "check_ports",
        "firmware",
    ),
    "bmc_task_progress_is_bounded": Check(
        "bmc_tasks", ({**_UPDATE, "progress": _LARGE},), ({}, {**_UPDATE, "progress": "{}", "result": "{}"})
    ),
    "bmc_task_result_is_bounded": Check("bmc_tasks", ({**_UPDATE, "result": _LARGE},), ({**_UPDATE, "result": "{}"},)),
    "bmc_task_updates_firmware": Check(
        "bmc_tasks", ({"progress": "{}"}, {"result": "{}"}), ({}, {**_UPDATE, "progress": "{}"})
    ),
    "bmc_task_outcome": Check(
        "bmc_tasks", ({**_FAILED, "outcome": "lost"},), ({}, _ENDED, _FAILED, {**_FAILED, "outcome": "unknown"})
    ),
    "bmc_task_failure_is_bounded": Check(
        "bmc_tasks", ({**_FAILED, "failure": "x" * 501},), ({**_FAILED, "failure": "x" * 500},)
    ),
    "bmc_task_issued_is_whole": Check("bmc_tasks", whole_or_absent(_ISSUED), ({}, _ISSUED)),
    "bmc_task_dispatched_is_whole": Check(
        "bmc_tasks", tuple({**_ISSUED, **one} for one in whole_or_absent(_DISPATCHED)), ({**_ISSUED, **_DISPATCHED},)
    ),
    "bmc_task_dispatched_was_issued": Check("bmc_tasks", (_DISPATCHED,), ({**_ISSUED, **_DISPATCHED},)),
    "bmc_task_end_is_whole": Check("bmc_tasks", ({"ended_at": NOW}, {**_ENDED, "ended_at": None}), ({}, _ENDED)),
    "bmc_task_waits": Check(
        "bmc_tasks",
        ({"waits_for": None}, {"waits_until": None}, _NO_WAIT, {**_ENDED, "waits_for": "lease"}),
        ({}, _ENDED),
    ),
    "bmc_task_failed_why": Check(
        "bmc_tasks", ({"failure": "f"}, {**_ENDED, "failure": "f"}, {**_FAILED, "failure": None}), ({}, _ENDED, _FAILED)
    ),
}
