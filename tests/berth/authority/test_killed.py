"""The development authority is whole after its process was killed before any write of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from berth.local import authority
from berth.local.authority import Authority, ensure_authority, name_listeners
from node_agent.key_set import open_key_set, read_envelope, read_public_keys, root_keys

ADDRESS = "192.0.2.7"


class Killed(BaseException):
    """The process ended here."""


def is_pair(certificate: Path, key: Path) -> bool:
    """Whether the certificate is of this key."""
    held = serialization.load_pem_private_key(key.read_bytes(), None).public_key()
    return x509.load_pem_x509_certificate(certificate.read_bytes()).public_key() == held


def require_whole(files: Authority) -> None:
    """Every pair of files fits, and agents trust the key set by the root that they pin."""
    for certificate, key in (
        (files.ca_certificate, files.ca_key),
        (files.deploy_ca_certificate, files.deploy_ca_key),
        (files.listener_certificate, files.listener_key),
        (files.console_certificate, files.console_key),
    ):
        assert is_pair(certificate, key), certificate.name
    key_set = open_key_set(read_envelope(files.key_set.read_bytes()), root_keys(read_public_keys(files.root_keys)))
    assert len(key_set.task_keys) == len(read_public_keys(files.task_verifying_keys)) == 1
    assert files.payload_keys.exists()
    assert files.webhook_keys.exists()


def killed_before(number: int, act: Callable[[], object]) -> bool:
    """Whether `act` was killed before its write of this number."""
    written = 0

    def write(path: Path, text: str) -> None:
        nonlocal written
        if written == number:
            raise Killed
        written += 1
        path.write_text(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority, "write_secret", write)
        try:
            act()
        except Killed:
            return True
    return False


def test_a_kill_while_it_is_made(tmp_path: Path) -> None:
    number, was_killed = 0, True
    while was_killed:
        directory = tmp_path / str(number)
        directory.mkdir()
        was_killed = killed_before(number, lambda: ensure_authority(directory, "berth.local"))  # noqa: B023 - called here
        require_whole(ensure_authority(directory, "berth.local"))
        number += 1
    assert number > 10


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_kill_while_the_listeners_get_names(tmp_path: Path, number: int) -> None:
    files = ensure_authority(tmp_path, "berth.local")
    assert killed_before(number, lambda: name_listeners(files, [ADDRESS])) == (number < 2)
    require_whole(ensure_authority(tmp_path, "berth.local"))
    name_listeners(files, [ADDRESS])
    require_whole(ensure_authority(tmp_path, "berth.local"))
    assert ADDRESS in str(
        x509.load_pem_x509_certificate(files.listener_certificate.read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
