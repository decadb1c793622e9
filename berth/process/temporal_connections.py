"""How every process of ours reaches Temporal: TLS with the server verified, a client certificate, an API key.

TLS is used unless the server is on this machine or `BERTH_TEMPORAL_TLS` says otherwise. The files are read when a
connection is made (the worker makes another when they change); no message and no `repr` contains a key.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import is_here


class UnusableTemporalSettings(Exception):
    """Settings that contradict each other, or a file that cannot be used; the message is one sentence."""


class TemporalSettings(BaseSettings):
    """How Temporal is reached, beside its address."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    temporal_tls: bool | None = Field(
        None,
        description="whether Temporal is reached over TLS; default: unless it is on this machine and nothing of TLS is set",
    )
    temporal_ca_file: Path | None = Field(None, description="certificates that verify Temporal; default: the system's")
    temporal_tls_certificate_file: Path | None = Field(
        None, description="client certificate that Temporal is shown; with its key"
    )
    temporal_tls_key_file: Path | None = Field(None, description="key of the client certificate")
    temporal_tls_server_name: str | None = Field(
        None, min_length=1, description="name that Temporal's certificate must have; default: the address's host"
    )
    temporal_api_key_file: Path | None = Field(
        None, description="file with the API key of Temporal; sent over TLS, or to this machine"
    )


@dataclass(frozen=True)
class TemporalConnection:
    """What a connection is made of; the fields of certificates are empty without TLS."""

    address: str
    server_name: str
    tls: ssl.SSLContext | None
    """For what connects without Temporal's library; None: no TLS."""
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def credentials(self) -> tuple[bytes | str | None, ...]:
        """The content of the files."""
        return self.ca, self.certificate, self.key, self.api_key


def host_of(address: str) -> str:
    """The host of `host:port`, an IPv6 address without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def uses_tls(address: str, settings: TemporalSettings) -> bool:
    """Whether this address is reached over TLS."""
    if settings.temporal_tls is not None:
        return settings.temporal_tls
    return not is_here(host_of(address)) or any(_given(settings)) or settings.temporal_api_key_file is not None


def files_of(settings: TemporalSettings) -> list[Path]:
    """The files of a connection, in a fixed order."""
    found = (getattr(settings, name) for name in TemporalSettings.model_fields if name.endswith("_file"))
    return [path for path in found if path is not None]


def variables_of(settings: TemporalSettings) -> dict[str, str]:
    """The variables with which another process has the same settings."""
    given = {name: getattr(settings, name) for name in TemporalSettings.model_fields}
    return {f"BERTH_{name.upper()}": str(value) for name, value in given.items() if value is not None}


def read_connection(address: str, settings: TemporalSettings) -> TemporalConnection:
    """The connection to this address, with the content of the files. Raises `UnusableTemporalSettings`."""
    tls = uses_tls(address, settings)
    if not tls:
        _require_nothing_of_tls(address, settings)
    if (settings.temporal_tls_certificate_file is None) != (settings.temporal_tls_key_file is None):
        raise UnusableTemporalSettings(
            "BERTH_TEMPORAL_TLS_CERTIFICATE_FILE and BERTH_TEMPORAL_TLS_KEY_FILE belong together; set both or neither"
        )
    return TemporalConnection(
        address=address,
        server_name=settings.temporal_tls_server_name or host_of(address),
        tls=_context(settings) if tls else None,
        ca=_content("BERTH_TEMPORAL_CA_FILE", settings.temporal_ca_file),
        certificate=_content("BERTH_TEMPORAL_TLS_CERTIFICATE_FILE", settings.temporal_tls_certificate_file),
        key=_content("BERTH_TEMPORAL_TLS_KEY_FILE", settings.temporal_tls_key_file),
        api_key=_api_key(settings.temporal_api_key_file),
    )


def _given(settings: TemporalSettings) -> Iterator[str]:
    """The variables that mean nothing without TLS and are set."""
    for name in ("ca_file", "tls_certificate_file", "tls_key_file", "tls_server_name"):
        if getattr(settings, f"temporal_{name}") is not None:
            yield f"BERTH_TEMPORAL_{name.upper()}"


def _require_nothing_of_tls(address: str, settings: TemporalSettings) -> None:
    for variable in _given(settings):
        raise UnusableTemporalSettings(f"{variable} is set although BERTH_TEMPORAL_TLS is false; remove one of them")
    if settings.temporal_api_key_file is not None and not is_here(host_of(address)):
        raise UnusableTemporalSettings(
            "BERTH_TEMPORAL_API_KEY_FILE is set although BERTH_TEMPORAL_TLS is false: the key would cross the network in "
            "clear text; remove one of them"
        )


def _content(variable: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableTemporalSettings(f"{variable} cannot be read: {error.strerror}: {path}") from error


def _context(settings: TemporalSettings) -> ssl.SSLContext:
    """A context that verifies the server. Raises if a file holds no certificate, or a key of another certificate."""
    ca_file, certificate, key = (
        settings.temporal_ca_file, settings.temporal_tls_certificate_file, settings.temporal_tls_key_file,
    )  # fmt: skip
    _content("BERTH_TEMPORAL_CA_FILE", ca_file)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise UnusableTemporalSettings(f"BERTH_TEMPORAL_CA_FILE holds no PEM certificate: {ca_file}") from error
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        _content("BERTH_TEMPORAL_TLS_CERTIFICATE_FILE", certificate)
        _content("BERTH_TEMPORAL_TLS_KEY_FILE", key)
        try:
            # An empty password: an encrypted key is refused instead of asking on a terminal.
            context.load_cert_chain(certificate, key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTemporalSettings(
                f"BERTH_TEMPORAL_TLS_CERTIFICATE_FILE and BERTH_TEMPORAL_TLS_KEY_FILE are no PEM certificate with its "
                f"unencrypted key: {certificate}, {key}"
            ) from error
    return context


def _api_key(path: Path | None) -> str | None:
    content = _content("BERTH_TEMPORAL_API_KEY_FILE", path)
    if content is None:
        return None
    key = content.strip()
    if not key or not all(0x21 <= byte <= 0x7E for byte in key):
        raise UnusableTemporalSettings(
            f"BERTH_TEMPORAL_API_KEY_FILE must hold one key of visible ASCII characters: {path}"
        )
    return key.decode()
