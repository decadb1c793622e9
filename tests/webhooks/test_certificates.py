"""TLS: the certificate is held against the name of the URL, whatever address is connected to."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.webhooks.receivers import receiving
from tests.webhooks.stage import WebhookStage

NAME = "hooks.example.com"


def certificate(directory: Path, name: str) -> Path:
    """A certificate that signs itself, with its key, for this name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = directory / f"{name}.pem"
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(made.public_bytes(Encoding.PEM) + pem)
    return file


@pytest.mark.parametrize(
    ("served", "trusted", "outcome"),
    [(NAME, True, (None, 204)), (NAME, False, ("tls", None)), ("other.example.com", True, ("tls", None))],
    ids=["good", "unknown", "of another name"],
)
def test_a_certificate(
    stage: WebhookStage, tmp_path: Path, served: str, trusted: bool, outcome: tuple[str | None, int | None]
) -> None:
    file = certificate(tmp_path, served)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    asked: list[str | None] = []
    serving.sni_callback = lambda link, name, context: asked.append(name)
    trusting = ssl.create_default_context(cafile=str(file)) if trusted else ssl.create_default_context()

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    tenant = stage.tenant()
    with receiving(tls=serving) as (receiver,):
        url = f"https://{NAME}:{receiver.port}/hook"
        webhook = tenant.make("/webhooks", {"url": url, "types": ["node.online"]})
        stage.append(tenant)
        stage.dispatch(stage.dispatcher(resolve=resolve, tls=trusting))
        (told,) = stage.deliveries(tenant, webhook)
        assert (told["error"], told["response_status"]) == outcome
        assert asked == [NAME]
        assert len(receiver.received) == (1 if outcome == (None, 204) else 0)
