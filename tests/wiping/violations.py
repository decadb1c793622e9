"""Ways in which a wipe certificate can be altered, exchanged or removed, planted by hand (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import planted

_CERTIFICATE = "update wipe_certificates set "
_LABEL = "wipe?certificates"
_ALTERED = "differs from what was countersigned"
_UNCHAINED = "is not in the chain of node"

WIPES = [
    planted(
        "a wipe certificate with another statement", _LABEL, _ALTERED,
        _CERTIFICATE + "statement = statement || jsonb_build_object('payload', encode('x'::bytea, 'base64'))"
        " where allocation_id = {released}",
    ),
    planted(
        "a wipe certificate with another digest", _LABEL, _ALTERED,
        _CERTIFICATE + "sha256 = sha256('x') where allocation_id = {released}",
    ),
    planted(
        "a wipe certificate of another allocation", _LABEL, _ALTERED,
        _CERTIFICATE + "allocation_id = {active} where allocation_id = {released}",
    ),
    planted(
        "a wipe certificate of another node", _LABEL, _ALTERED,
        _CERTIFICATE + "node_id = uuidv7() where allocation_id = {released}",
    ),
    planted(
        "a wipe certificate with another number", _LABEL, _ALTERED,
        _CERTIFICATE + "number = number + 100 where number = 2",
    ),
    planted(
        "a wipe certificate after another one", _LABEL, _ALTERED,
        _CERTIFICATE + "previous_sha256 = sha256('x') where number = 2",
    ),
    planted("a chain of wipe certificates without a head", _LABEL, _UNCHAINED, "delete from wipe_chains"),
    planted(
        "a head behind its wipe certificates", _LABEL, _UNCHAINED, "update wipe_chains set number = number - 1 where number > 1"
    ),
    planted(
        "a head of another wipe certificate", _LABEL, _UNCHAINED, "update wipe_chains set sha256 = sha256('x')"
    ),
    planted(
        "a wipe certificate that was removed", _LABEL, "was wiped and has no wipe certificate",
        "delete from wipe_certificates where allocation_id = {released}",
    ),
]  # fmt: skip
