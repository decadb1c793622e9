"""CHECK constraints of attestations on demand."""

from __future__ import annotations

from tests.schema.checks import Check, length, whole_or_absent
from tests.support.rows import LATER, NOW, OTHER

_TABLE = "node_attestations"
_OF_WAIT = {"waits_for": "node", "waits_since": NOW, "waits_until": LATER}
_ENDED = {
    "ended_at": NOW, "verdict": "failed", "code": "expired", "waits_for": None, "waits_since": None, "waits_until": None,
}  # fmt: skip
_ISSUED = {"task_id": OTHER, "issued_at": NOW}
_PCRS = ["00" * 32] * 8
_PASSED = {**_ENDED, **_ISSUED, "verdict": "passed", "code": None, "pcrs": _PCRS, "evidence": "{}"}

CHECKS = {
    "attestation_nonce_has_32_bytes": Check(_TABLE, ({"nonce": bytes(31)}, {"nonce": bytes(33)}), ({},)),
    "attestation_verdict": Check(_TABLE, ({**_ENDED, "verdict": "unknown", "code": None},), ({}, _ENDED, _PASSED)),
    "attestation_code_is_bounded": Check(
        _TABLE, ({**_ENDED, "code": ""}, {**_ENDED, "code": "x" * 65}), (_ENDED, {**_ENDED, "code": "x" * 64})
    ),
    "attestation_detail_is_bounded": length(_TABLE, "detail", 0, 500),
    "attestation_pcrs_are_eight": Check(_TABLE, ({"pcrs": _PCRS[:7]}, {"pcrs": [*_PCRS, "x"]}), ({"pcrs": _PCRS},)),
    "attestation_compared": Check(
        _TABLE, ({"compared": ["all"]},), ({"compared": ["pcrs", "inspection", "firmware_list"]}, {"compared": []})
    ),
    "attestation_evidence_is_bounded": Check(
        _TABLE, ({"evidence": '"' + "x" * 131_071 + '"'},), ({"evidence": '"' + "x" * 131_070 + '"'},)
    ),
    "attestation_task_is_whole": Check(_TABLE, whole_or_absent(_ISSUED), ({}, _ISSUED)),
    "attestation_has_one_answerer": Check(
        _TABLE, ({**_ISSUED, "deploy_run_id": OTHER},), (_ISSUED, {"deploy_run_id": OTHER})
    ),
    "attestation_end_is_whole": Check(
        _TABLE, ({"ended_at": NOW}, {**_ENDED, "ended_at": None}), ({}, _ENDED)
    ),
    "attestation_waits": Check(
        _TABLE,
        (
            {"waits_for": None},
            {"waits_until": None},
            {**_ENDED, "waits_for": "node"},
            {**_ENDED, **_OF_WAIT},
            {"waits_for": None, "waits_since": None, "waits_until": None},
        ),
        ({}, _ENDED),
    ),
    "attestation_failure_has_code": Check(
        _TABLE, ({"code": "expired"}, {**_ENDED, "code": None}, {**_PASSED, "code": "expired"}), ({}, _ENDED, _PASSED)
    ),
    "attestation_is_proven": Check(
        _TABLE, ({**_PASSED, "pcrs": None}, {**_PASSED, "evidence": None}), (_PASSED, _ENDED)
    ),
    "accepted_pcrs_are_eight": Check(
        "node_accepted_pcrs", ({"pcrs": _PCRS[:7]}, {"pcrs": [*_PCRS, "x"]}), ({"pcrs": _PCRS},)
    ),
}  # fmt: skip
