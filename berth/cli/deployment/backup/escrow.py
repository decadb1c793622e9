"""Key files encrypted to a recovery public key, whose private half is offline: X25519, HKDF-SHA256, ChaCha20-Poly1305.

An escrow is one line of JSON, the header, and the ciphertext. Each has its own ephemeral key (as age and HPKE have it), so the
cipher's nonce is constant. The header is authenticated: a change of any byte is found. No message contains a key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.directory import BackupDirectory, create_whole, of_system
from berth.cli.deployment.backup.problems import BackupProblem
from berth.process.crash_points import reach
from berth.process.durable_directories import sync_directory
from berth.process.json_objects import JsonObject

FORMAT = "berth key escrow 1"
PUBLIC_PREFIX = "berth-recovery-"
CHECK_BYTES = 4
SUFFIX = ".escrow"
SITE_PREFIX = "site-recovery-"
"""Of escrows that hold the recovery key of a site, and none of the control plane's key files."""
_NONCE = bytes(12)
_INFO = b"berth key escrow 1"


@dataclass(frozen=True, slots=True)
class Escrow:
    """What the header of an escrow says: readable without the private key. `digests` are salted, by the file's name."""

    made_at: str
    recipient: str
    salt: str
    digests: Mapping[str, str]

    def lacks(self, files: Mapping[str, bytes]) -> list[str]:
        """The names of these files whose present content is not in the escrow."""
        return sorted(name for name, content in files.items() if self.digests.get(name) != digest(self.salt, content))


def new_key(path: Path) -> str:
    """Make a recovery key pair: the private key in a new file, 0600; returns the public key. Raises `BackupProblem`."""
    private = X25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_new(path, pem)
    return show_public(private.public_key())


def show_public(key: X25519PublicKey) -> str:
    """The public key as text, with a check sum: nothing is ever encrypted to a mistyped key, which could not be opened."""
    raw = key.public_bytes_raw()
    return (
        PUBLIC_PREFIX + base64.b32encode(raw + hashlib.sha256(raw).digest()[:CHECK_BYTES]).decode().rstrip("=").lower()
    )


def read_public(text: str) -> X25519PublicKey:
    """The key that `show_public` wrote. Raises `BackupProblem`."""
    try:
        encoded = text.strip().removeprefix(PUBLIC_PREFIX).upper()
        raw = base64.b32decode(encoded + "=" * (-len(encoded) % 8))
        key, check = raw[:-CHECK_BYTES], raw[-CHECK_BYTES:]
        if hashlib.sha256(key).digest()[:CHECK_BYTES] == check and text.strip().startswith(PUBLIC_PREFIX):
            return X25519PublicKey.from_public_bytes(key)
    except ValueError:
        pass
    raise BackupProblem(
        "recovery_key_wrong",
        f"this is no recovery public key, or it is mistyped: it begins with {PUBLIC_PREFIX} and has a check sum",
    )


def digest(salt: str, content: bytes) -> str:
    """Of a file in a header. The files are keys of 256 bits, so that their digest gives nothing away."""
    return hashlib.sha256(salt.encode() + content).hexdigest()


def seal(files: Mapping[str, bytes], recipient: X25519PublicKey, now: datetime) -> bytes:
    """An escrow of these files. Raises `BackupProblem` for a recipient that is no key of anything."""
    ephemeral = X25519PrivateKey.generate()
    salt = secrets.token_hex(16)
    header = json.dumps(
        {
            "format": FORMAT, "made_at": now.isoformat(), "recipient": show_public(recipient), "salt": salt,
            "ephemeral": base64.b64encode(ephemeral.public_key().public_bytes_raw()).decode(),
            "digests": {name: digest(salt, content) for name, content in sorted(files.items())},
        },
        sort_keys=True,
    ).encode()  # fmt: skip
    content = json.dumps({name: base64.b64encode(content).decode() for name, content in files.items()}).encode()
    try:
        shared = ephemeral.exchange(recipient)
    except ValueError as error:
        raise BackupProblem("recovery_key_wrong", "nothing can be encrypted to this recovery public key") from error
    key = _derive(shared, ephemeral.public_key(), recipient)
    return header + b"\n" + ChaCha20Poly1305(key).encrypt(_NONCE, content, header)


def read_header(content: bytes) -> Escrow:
    """What an escrow says of itself. Raises `BackupProblem`."""
    found = _header(content)
    try:
        return Escrow(str(found["made_at"]), str(found["recipient"]), str(found["salt"]), dict(found["digests"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged() from error


def unseal(content: bytes, private: X25519PrivateKey) -> dict[str, bytes]:
    """The files of an escrow. Raises `BackupProblem` for another key's escrow, or one with a changed byte."""
    found, (header, _, sealed) = _header(content), content.partition(b"\n")
    if found.get("recipient") != show_public(private.public_key()):
        raise BackupProblem(
            "escrow_other_key", f"the escrow is for {found.get('recipient')}, not for this recovery key"
        )
    try:
        ephemeral = X25519PublicKey.from_public_bytes(base64.b64decode(found["ephemeral"], validate=True))
        key = _derive(private.exchange(ephemeral), ephemeral, private.public_key())
        opened = json.loads(ChaCha20Poly1305(key).decrypt(_NONCE, sealed, header))
        return {str(name): base64.b64decode(text, validate=True) for name, text in opened.items()}
    except (InvalidTag, KeyError, TypeError, ValueError) as error:
        raise _damaged() from error


def read_private(path: Path) -> X25519PrivateKey:
    """The recovery private key in a file. Raises `BackupProblem`."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise of_system(error, path) from error
    except (ValueError, TypeError) as error:
        raise BackupProblem(
            "recovery_key_wrong", f"{path} holds no private key of `berth backup new-recovery-key`"
        ) from error
    if not isinstance(key, X25519PrivateKey):
        raise BackupProblem("recovery_key_wrong", f"{path} holds another kind of private key than X25519")
    return key


def store(directory: BackupDirectory, files: Mapping[str, bytes], recipient: X25519PublicKey) -> Path:
    """Write an escrow into the backup directory; returns its path. Earlier ones stay: they open what earlier keys sealed."""
    directory.system_identifier()
    now = datetime.now(UTC)
    path = directory.keys / f"{now.strftime('%Y%m%dT%H%M%S%fZ')}{SUFFIX}"
    content = seal(files, recipient, now)
    try:
        reach(CrashPoint.BEFORE_ESCROW)
        create_whole(path, content)
    except OSError as error:
        raise of_system(error, path) from error
    return path


def newest(directory: BackupDirectory) -> Escrow | None:
    """The header of the newest escrow of key files; None if there is none. Raises `BackupProblem` if it is damaged."""
    escrows = directory.keys.glob(f"*{SUFFIX}")
    found = sorted(path for path in escrows if not path.name.startswith((".", SITE_PREFIX)))
    if not found:
        return None
    try:
        return read_header(found[-1].read_bytes())
    except OSError as error:
        raise of_system(error, found[-1]) from error


def open_into(escrow: Path, private: X25519PrivateKey, folder: Path) -> list[str]:
    """Write the files of an escrow into a folder that is new or empty, each 0600; returns their names. Raises `BackupProblem`."""
    try:
        files = unseal(escrow.read_bytes(), private)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BackupProblem("escrow_not_opened", f"{folder} is not empty; name a new directory")
        for name, content in files.items():
            if Path(name).name != name:
                raise _damaged()
            _write_new(folder / name, content)
        sync_directory(folder)
    except OSError as error:
        raise of_system(error, escrow) from error
    return sorted(files)


def _derive(shared: bytes, ephemeral: X25519PublicKey, recipient: X25519PublicKey) -> bytes:
    salt = ephemeral.public_bytes_raw() + recipient.public_bytes_raw()
    return HKDF(hashes.SHA256(), 32, salt=salt, info=_INFO).derive(shared)


def _header(content: bytes) -> JsonObject:
    try:
        found = json.loads(content.partition(b"\n")[0])
    except ValueError as error:
        raise _damaged() from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise _damaged()
    return found


def _damaged() -> BackupProblem:
    return BackupProblem(
        "escrow_damaged", "this is no escrow of key files, or it was changed since it was made; use another copy"
    )


def _write_new(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise BackupProblem("escrow_not_opened", f"{path} exists and is not replaced; name another file") from error
    except OSError as error:
        raise of_system(error, path) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
