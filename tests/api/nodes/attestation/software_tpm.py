"""A TPM in Python: what `TPM2_ActivateCredential` and `TPM2_Quote` do, written from the specification (Part 1, 24).

It shares no code with the control plane's side. swtpm is the reference for both (test_swtpm.py, recorded/).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_agent.attestation.wire import Attestation, AttestationChallenge, TpmKeys, quoted_data

EK_ATTRIBUTES = 0x000300B2
AK_ATTRIBUTES = 0x00050072


def encoded(content: bytes) -> str:
    """Base64, as structures travel."""
    return base64.b64encode(content).decode()


def sized(content: bytes) -> bytes:
    """A TPM2B."""
    return struct.pack(">H", len(content)) + content


def _kdfa(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    return hmac.digest(key, struct.pack(">I", 1) + label + b"\0" + context + struct.pack(">I", bits), "sha256")[
        : bits // 8
    ]


@dataclass
class SoftwareTpm:
    """Both keys of a TPM, and what it does with them."""

    ek: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    ak: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    ak_attributes: int = AK_ATTRIBUTES

    @property
    def ek_public(self) -> bytes:
        """TPMT_PUBLIC of template L-1."""
        modulus = self.ek.public_key().public_numbers().n.to_bytes(256, "big")
        policy = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
        head = struct.pack(">HHI", 0x0001, 0x000B, EK_ATTRIBUTES) + sized(policy)
        return head + struct.pack(">HHHHHI", 0x0006, 128, 0x0043, 0x0010, 2_048, 0) + sized(modulus)

    @property
    def ak_public(self) -> bytes:
        """TPMT_PUBLIC of a restricted P-256 signing key."""
        point = self.ak.public_key().public_numbers()
        head = struct.pack(">HHI", 0x0023, 0x000B, self.ak_attributes) + sized(b"")
        head += struct.pack(">HHHHH", 0x0010, 0x0018, 0x000B, 0x0003, 0x0010)
        return head + sized(point.x.to_bytes(32, "big")) + sized(point.y.to_bytes(32, "big"))

    @property
    def ek_sha256(self) -> str:
        """The fingerprint that an operator registers."""
        der = self.ek.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def keys(self) -> TpmKeys:
        """What the agent sends."""
        return TpmKeys(ek_public=encoded(self.ek_public), ak_public=encoded(self.ak_public))

    def activate(self, challenge: AttestationChallenge) -> bytes:
        """The secret of a challenge. Raises ValueError if it is for another TPM or another attestation key."""
        credential = base64.b64decode(challenge.credential or "")
        encrypted = base64.b64decode(challenge.encrypted_secret or "")
        oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=b"IDENTITY\0")
        seed = self.ek.decrypt(encrypted[2:], oaep)
        name = b"\0\x0b" + hashlib.sha256(self.ak_public).digest()
        integrity, identity = credential[4:36], credential[36:]
        if integrity != hmac.digest(_kdfa(seed, b"INTEGRITY", b"", 256), identity + name, "sha256"):
            raise ValueError("the credential is for another key")
        cipher = Cipher(AES(_kdfa(seed, b"STORAGE", name, 128)), CFB(bytes(16))).decryptor()
        return (cipher.update(identity) + cipher.finalize())[2:]

    def quote(self, data: bytes) -> Attestation:
        """A quote over this data."""
        attested = struct.pack(">IH", 0xFF544347, 0x8018) + sized(b"\0\x0b" + bytes(32)) + sized(data)
        attested += struct.pack(">QIIBQ", 1_000, 1, 0, 1, 7)
        attested += struct.pack(">IHB", 1, 0x000B, 3) + b"\xff\0\0" + sized(bytes(32))
        signature = self.ak.sign(attested, ec.ECDSA(hashes.SHA256()))
        return Attestation(quote=encoded(attested), signature=encoded(signature))

    def answer(self, challenge: AttestationChallenge, key_sha256: bytes) -> Attestation:
        """The answer to a challenge, for a request with this key."""
        return self.quote(quoted_data(self.activate(challenge), key_sha256))
