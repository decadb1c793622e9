"""Read the TPM 2.0 structures that an agent sends: public keys and quotes (TPM 2.0 Library, Part 2: Structures).

Each is one exact layout, that of the templates in docs/reference/node-protocol.md; everything else is refused. Lengths are
bounded before a field is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchestrator.nodes.refusals import AttestationReason, AttestationRefused

PUBLIC_BYTES_MAX: Final = 1_024
QUOTE_BYTES_MAX: Final = 1_024
PCR_SELECTIONS_MAX: Final = 4

_ALG_RSA, _ALG_ECC, _ALG_SHA256 = 0x0001, 0x0023, 0x000B
_ALG_AES, _ALG_CFB, _ALG_NULL, _ALG_ECDSA = 0x0006, 0x0043, 0x0010, 0x0018
_CURVE_P256 = 0x0003
_GENERATED = 0xFF544347
_ST_ATTEST_QUOTE = 0x8018
_RSA_BITS = (2_048, 3_072)
_RSA_EXPONENT = 65_537
_COORDINATE_BYTES = 32
_NAME_BYTES_MAX = 66
_DIGEST_BYTES_MAX = 64

# TPMA_OBJECT (Part 2, 8.3): the key was made in this TPM, cannot leave it, and does the one thing it is for.
_FIXED = 1 << 1 | 1 << 4 | 1 << 5  # fixedTPM, fixedParent, sensitiveDataOrigin
_RESTRICTED, _DECRYPT, _SIGN = 1 << 16, 1 << 17, 1 << 18
_PURPOSE = _FIXED | _RESTRICTED | _DECRYPT | _SIGN


@dataclass(frozen=True, slots=True)
class EndorsementKey:
    """The key that identifies a TPM. `sha256` is the digest of its SubjectPublicKeyInfo."""

    public: bytes
    key: rsa.RSAPublicKey
    sha256: bytes


@dataclass(frozen=True, slots=True)
class AttestationKey:
    """The key with which a TPM signs quotes. `name` is its TPM name, which covers its attributes."""

    public: bytes
    key: ec.EllipticCurvePublicKey
    name: bytes


@dataclass(frozen=True, slots=True)
class Quote:
    """What a quote says: the data that the caller chose, and the digest of the selected PCRs.

    `selections`: algorithm and bitmap (lowest PCR first) of each bank.
    """

    extra_data: bytes
    selections: tuple[tuple[int, bytes], ...]
    pcr_digest: bytes

    def selects_first(self, count: int) -> bool:
        """Whether the digest is of PCRs 0 to `count` - 1 of the bank of SHA-256, in this order, and of nothing else."""
        if len(self.selections) != 1:
            return False
        ((algorithm, bitmap),) = self.selections
        return algorithm == _ALG_SHA256 and int.from_bytes(bitmap, "little") == (1 << count) - 1


class _Reader:
    """Reads big-endian fields; `AttestationRefused` at the first that is not there."""

    def __init__(self, content: bytes, bytes_max: int) -> None:
        if len(content) > bytes_max:
            raise _malformed(f"is longer than {bytes_max} bytes")
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) != count:
            raise _malformed("ends too early")
        self._at += count
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def sized(self, bytes_max: int) -> bytes:
        """A TPM2B: a length and so many bytes."""
        count = self.number(2)
        if count > bytes_max:
            raise _malformed(f"has a field of {count} bytes, at most {bytes_max} are allowed")
        return self.take(count)

    def expect(self, count: int, wanted: int, what: str) -> None:
        """A field of this size with this value."""
        if self.number(count) != wanted:
            raise AttestationRefused(AttestationReason.UNSUITABLE_KEY, f"its {what} is not that of the template")

    def end(self) -> None:
        if self._at != len(self._content):
            raise _malformed("has bytes behind its end")


def read_endorsement_key(public: bytes) -> EndorsementKey:
    """The RSA endorsement key in a TPMT_PUBLIC (template L-1 of the TCG EK Credential Profile, or with 3,072 bits).

    Raises `AttestationRefused` if it is malformed, or a key that could exist outside a TPM or serve another purpose.
    """
    reader = _Reader(public, PUBLIC_BYTES_MAX)
    reader.expect(2, _ALG_RSA, "type")
    _read_attributes(reader, _FIXED | _RESTRICTED | _DECRYPT)
    reader.sized(_DIGEST_BYTES_MAX)  # the policy of its use
    reader.expect(2, _ALG_AES, "symmetric algorithm")
    reader.expect(2, 128, "symmetric key size")
    reader.expect(2, _ALG_CFB, "symmetric mode")
    reader.expect(2, _ALG_NULL, "scheme")
    bits = reader.number(2)
    if bits not in _RSA_BITS or reader.number(4) not in (0, _RSA_EXPONENT):
        raise AttestationRefused(AttestationReason.UNSUITABLE_KEY, "the endorsement key has another size or exponent")
    modulus = int.from_bytes(reader.sized(bits // 8), "big")
    reader.end()
    if modulus.bit_length() != bits or modulus % 2 == 0:
        raise AttestationRefused(AttestationReason.UNSUITABLE_KEY, "the modulus is not one of its size")
    try:
        key = rsa.RSAPublicNumbers(_RSA_EXPONENT, modulus).public_key()
    except ValueError as error:
        raise AttestationRefused(AttestationReason.UNSUITABLE_KEY, "the endorsement key is no RSA key") from error
    return EndorsementKey(public, key, public_key_digest(key))


def read_attestation_key(public: bytes) -> AttestationKey:
    """The restricted P-256 signing key in a TPMT_PUBLIC. Raises `AttestationRefused` as `read_endorsement_key`."""
    reader = _Reader(public, PUBLIC_BYTES_MAX)
    reader.expect(2, _ALG_ECC, "type")
    _read_attributes(reader, _FIXED | _RESTRICTED | _SIGN)
    reader.sized(_DIGEST_BYTES_MAX)
    reader.expect(2, _ALG_NULL, "symmetric algorithm")
    reader.expect(2, _ALG_ECDSA, "scheme")
    reader.expect(2, _ALG_SHA256, "hash of the scheme")
    reader.expect(2, _CURVE_P256, "curve")
    reader.expect(2, _ALG_NULL, "key derivation")
    x, y = (int.from_bytes(reader.sized(_COORDINATE_BYTES), "big") for _ in range(2))
    reader.end()
    try:
        key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    except ValueError as error:
        raise AttestationRefused(
            AttestationReason.UNSUITABLE_KEY, "the attestation key is no point of P-256"
        ) from error
    return AttestationKey(public, key, _ALG_SHA256.to_bytes(2, "big") + hashlib.sha256(public).digest())


def _read_attributes(reader: _Reader, wanted: int) -> None:
    reader.expect(2, _ALG_SHA256, "name algorithm")
    if reader.number(4) & _PURPOSE != wanted:
        raise AttestationRefused(
            AttestationReason.UNSUITABLE_KEY, "a key is not fixed to its TPM and restricted to its purpose"
        )


def read_quote(quote: bytes) -> Quote:
    """The content of a TPMS_ATTEST of type quote. Its signature is not checked here. Raises `AttestationRefused`."""
    reader = _Reader(quote, QUOTE_BYTES_MAX)
    if reader.number(4) != _GENERATED or reader.number(2) != _ST_ATTEST_QUOTE:
        raise _malformed("is not a quote that a TPM has made")
    reader.sized(_NAME_BYTES_MAX)  # the qualified name of the signer
    extra_data = reader.sized(_DIGEST_BYTES_MAX)
    reader.take(8 + 4 + 4 + 1 + 8)  # clock, resets, restarts, whether the clock is safe; firmware
    selections = reader.number(4)
    if selections > PCR_SELECTIONS_MAX:
        raise _malformed(f"selects PCRs of {selections} banks, at most {PCR_SELECTIONS_MAX} are allowed")
    selected = tuple((reader.number(2), reader.take(reader.number(1))) for _ in range(selections))
    pcr_digest = reader.sized(_DIGEST_BYTES_MAX)
    reader.end()
    return Quote(extra_data, selected, pcr_digest)


def public_key_digest(key: rsa.RSAPublicKey) -> bytes:
    """The SHA-256 of the key's SubjectPublicKeyInfo: the fingerprint that operators register."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def _malformed(what: str) -> AttestationRefused:
    return AttestationRefused(AttestationReason.MALFORMED, f"a structure of the TPM {what}")
