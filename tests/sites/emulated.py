"""A stage for a machine of QEMU: its deploy system reaches both listeners at the host's address in QEMU's user network."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from berth.local.authority import Authority
from tests.api.calling import Caller
from tests.metal.server import HOST
from tests.sites.stage import Stage
from tests.support.waiting import WAIT_SECONDS_MAX


class EmulatedStage(Stage):
    """The public listener over TLS, and agents of sites that enrol by it."""

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__(url, directory)
        name_listener(self.authority, ("127.0.0.1", HOST))
        self.api_url = f"https://127.0.0.1:{self.endpoints.public_port}"
        trusted = ssl.create_default_context(cafile=str(self.authority.ca_certificate))
        self.http = httpx.Client(base_url=self.api_url, verify=trusted, timeout=WAIT_SECONDS_MAX)
        self.admin = Caller(self.http, self.admin.key)

    def settings(self) -> dict[str, str]:
        """Of both listeners."""
        return {
            **super().settings(),
            "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(self.authority.listener_certificate),
            "BERTH_PUBLIC_TLS_KEY_FILE": str(self.authority.listener_key),
            "BERTH_PUBLIC_API_URL": f"https://{HOST}:{self.endpoints.public_port}",
            "BERTH_NODE_API_URL": f"https://{HOST}:{self.endpoints.node_port}",
        }

    def agent_settings(self) -> dict[str, str]:
        """Of one more agent."""
        ca, node_api = str(self.authority.ca_certificate), self.endpoints.node_api_url
        return {**super().agent_settings(), "BERTH_API_CA_FILE": ca, "BERTH_NODE_API_URL": node_api}


def name_listener(authority: Authority, addresses: tuple[str, ...]) -> None:
    """Give the listeners a certificate for these addresses."""
    ca = x509.load_pem_x509_certificate(authority.ca_certificate.read_bytes())
    ca_key = serialization.load_pem_private_key(authority.ca_key.read_bytes(), None)
    key = serialization.load_pem_private_key(authority.listener_key.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(one)) for one in addresses])
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 60 * day)  # `ensure_authority` renews what ends sooner
        .add_extension(names, critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    authority.listener_certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
