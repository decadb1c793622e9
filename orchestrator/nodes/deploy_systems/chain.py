"""Distinguishes certificates of the CA of deploy systems from those of the node CAs, which the node listener trusts as well."""

from __future__ import annotations

from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

log = structlog.get_logger("orchestrator.deploy_chain")


class DeployChain:
    """The CAs of deploy systems in a file, read again when it changes; a file that cannot be read leaves the last ones in use.

    Raises OSError, or ValueError if the file holds no certificate or one of a node CA as well.
    """

    def __init__(self, file: Path, node_ca_file: Path) -> None:
        self._files = (file, node_ca_file)
        self._seen = self._state()
        self._cas = self._read()

    def signed(self, certificate: bytes | None) -> bool:
        """Whether one of the CAs has signed the certificate (DER), which TLS has verified."""
        self._reload()
        if certificate is None:
            return False
        peer = x509.load_der_x509_certificate(certificate)
        return any(_is_issuer(ca, peer) for ca in self._cas)

    def _reload(self) -> None:
        try:
            state = self._state()
            if state != self._seen:
                self._cas = self._read()
                self._seen = state
                log.info("deploy_ca_reloaded", file=str(self._files[0]))
        except (OSError, ValueError) as error:
            log.warning("deploy_ca_not_reloaded", file=str(self._files[0]), why=str(error))

    def _state(self) -> tuple[int, ...]:
        found = [file.stat() for file in self._files]
        return tuple(number for each in found for number in (each.st_ino, each.st_size, each.st_mtime_ns))

    def _read(self) -> list[x509.Certificate]:
        own, of_nodes = (x509.load_pem_x509_certificates(file.read_bytes()) for file in self._files)
        if {_key(ca) for ca in own} & {_key(ca) for ca in of_nodes}:
            raise ValueError(f"{self._files[0].name} holds a node CA; deploy systems need a CA with a separate key")
        return own


def _key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _is_issuer(ca: x509.Certificate, peer: x509.Certificate) -> bool:
    try:
        peer.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
