"""An issuer's public keys, read from its JWK set (RFC 7517).

A key serves exactly one algorithm, decided by its type and never by a token, so an algorithm cannot be confused with
another. PyJWT parses the keys; the bounds are Berth's. Symmetric keys, keys for encryption and weak keys are passed over:
sets of real issuers hold them too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import jwt
import orjson

from berth.process.json_objects import JsonObject

KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2048  # RFC 7518 §3.3
RSA_BITS_MAX: Final = 8192
# Type and curve -> our algorithm, what the key's own `alg` may call it, and the members that make up the public key.
_KINDS: Final[Mapping[tuple[object, object], tuple[str, frozenset[str], tuple[str, ...]]]] = {
    ("RSA", None): ("RS256", frozenset({"RS256"}), ("kty", "n", "e")),
    ("EC", "P-256"): ("ES256", frozenset({"ES256"}), ("kty", "crv", "x", "y")),
    ("OKP", "Ed25519"): ("EdDSA", frozenset({"EdDSA", "Ed25519"}), ("kty", "crv", "x")),
}
ALGORITHMS: Final = frozenset(algorithm for algorithm, _, _ in _KINDS.values())


class UnreadableKeySet(Exception):
    """The document is no JWK set of a size that we take."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One public key. `fingerprint` is the SHA-256 of its public members: equal for the same key only."""

    algorithm: str
    fingerprint: bytes
    public: jwt.PyJWK


KeySet = Mapping[str, Mapping[str, IssuerKey]]
"""By key id, then by algorithm."""


def read_key_set(document: bytes) -> KeySet:
    """The usable keys of a JWK set; of two with the same id and algorithm the first. Raises `UnreadableKeySet`."""
    try:
        parsed = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise UnreadableKeySet("the key set is not JSON") from error
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        raise UnreadableKeySet("the key set has no list `keys`")
    if len(listed) > KEYS_MAX:
        raise UnreadableKeySet(f"the key set has more than {KEYS_MAX} keys")
    found: dict[str, dict[str, IssuerKey]] = {}
    for member in listed:
        key = _usable_key(member) if isinstance(member, dict) else None
        if key is not None:
            found.setdefault(member["kid"], {}).setdefault(key.algorithm, key)
    return found


def _usable_key(member: JsonObject) -> IssuerKey | None:
    if not isinstance(member.get("kid"), str) or member.get("use", "sig") != "sig":
        return None
    operations = member.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    # By equality, as members may be of any type whatever and need not be hashable.
    kind = next((kind for type_and_curve, kind in _KINDS.items() if type_and_curve == _kind_of(member)), None)
    if kind is None:
        return None
    algorithm, own_names, names = kind
    if not any(member.get("alg", algorithm) == name for name in own_names):
        return None
    public = {name: member.get(name) for name in names}
    if not all(isinstance(value, str) for value in public.values()):
        return None
    try:
        key = jwt.PyJWK.from_dict(public, algorithm)
    except (jwt.PyJWTError, ValueError):
        return None
    if algorithm == "RS256" and not RSA_BITS_MIN <= key.key.key_size <= RSA_BITS_MAX:
        return None
    return IssuerKey(algorithm, hashlib.sha256(orjson.dumps(public, option=orjson.OPT_SORT_KEYS)).digest(), key)


def _kind_of(member: JsonObject) -> tuple[object, object]:
    return member.get("kty"), member.get("crv")
