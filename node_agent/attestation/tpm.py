"""The node's TPM 2.0, by the programs of tpm2-tools: its keys, and answers to the control plane's challenges.

The endorsement key and the attestation key are derived from the TPM's own seed at each use, so nothing of them is on disk and
a restart has the same keys. Each call uses a private directory, which ends with it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from node_agent.attestation.wire import Attestation, AttestationChallenge, TpmKeys, quoted_data
from node_agent.wire.attestations import PCR_COUNT, AttestationProof, nonce_data

CALL_SECONDS_MAX: Final = 60.0
"""Of one program: a hardware TPM makes an RSA key in up to some ten seconds."""
PCRS: Final = "sha256:0,1,2,3,4,5,6,7"
PCR_BYTES: Final = 32
AK_ATTRIBUTES: Final = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"
AK_ALGORITHM: Final = "ecc256:ecdsa-sha256:null"
CREDENTIAL_HEADER: Final = bytes.fromhex("badcc0de00000001")
"""Magic and version of the file that `tpm2_activatecredential` reads."""
_PREFIX: Final = "tpm-"
_LOCKOUT: Final = "(0x921)"
"""TPM_RC_LOCKOUT (TPM 2.0 part 2, §6.6.3), as the programs print it."""

Answer = TypeVar("Answer")


class TpmFailed(Exception):
    """The TPM, or a program that talks to it, does not do what it should; another attempt may succeed."""


def remove_sessions(directory: Path) -> None:
    """Remove what calls that were killed have left in a directory; no other process uses a TPM in it."""
    for left in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


class Tpm:
    """A TPM at a TCTI address, for example `device:/dev/tpmrm0`. One call at a time.

    `ends_lockout`: where the TPM refuses its keys because others were used with wrong secrets, or because the machine was
    switched off by force, set its counter back and ask again. Of a deploy system: a tenant could keep its machine from being
    wiped.
    """

    def __init__(self, tcti: str, directory: Path, *, ends_lockout: bool = False) -> None:
        self._tcti = tcti
        self._directory = directory
        self._ends_lockout = ends_lockout
        self._lock = asyncio.Lock()

    async def keys(self) -> TpmKeys:
        """The public parts of both keys. Raises TpmFailed."""
        async with self._session() as session:
            return await session.keys()

    async def answer(self, challenge: AttestationChallenge, key_sha256: bytes) -> Attestation:
        """Decrypt the challenge and quote it together with the key to certify. Raises TpmFailed, also for another TPM's."""

        async def work() -> Attestation:
            async with self._session() as session:
                await session.keys()
                secret = await session.activate(challenge)
                return await session.quote(quoted_data(secret, key_sha256))

        return await self._unlocked(work)

    async def attest(self, nonce: bytes) -> AttestationProof:
        """Quote a nonce of the control plane, with the PCRs that the quote covers. Raises TpmFailed."""

        async def work() -> AttestationProof:
            async with self._session() as session:
                await session.keys()
                quoted = await session.quote(nonce_data(nonce))
                return AttestationProof(quote=quoted.quote, signature=quoted.signature, pcrs=session.pcrs())

        return await self._unlocked(work)

    async def _unlocked(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await work()
        except TpmFailed as error:
            if not self._ends_lockout or _LOCKOUT not in str(error):
                raise
        async with self._session() as session:
            await session.end_lockout()
        return await work()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        async with self._lock:
            with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=self._directory) as directory:
                yield _Session(self._tcti, Path(directory))


class _Session:
    """Keys that are loaded by their saved contexts in one directory."""

    def __init__(self, tcti: str, directory: Path) -> None:
        self._environment = {"PATH": os.environ.get("PATH", ""), "TPM2TOOLS_TCTI": tcti}
        self._directory = directory

    async def keys(self) -> TpmKeys:
        await self._run("createek", "-c", "ek.ctx", "-G", "rsa", "-u", "ek.pub", "-f", "tpmt")
        await self._flush()
        await self._run(
            "createprimary", "-Q", "-C", "e", "-g", "sha256", "-G", AK_ALGORITHM, "-a", AK_ATTRIBUTES, "-c", "ak.ctx"
        )
        await self._flush()
        await self._run("readpublic", "-Q", "-c", "ak.ctx", "-o", "ak.pub", "-f", "tpmt")
        await self._flush()
        return TpmKeys(ek_public=self._encoded("ek.pub"), ak_public=self._encoded("ak.pub"))

    async def activate(self, challenge: AttestationChallenge) -> bytes:
        """The secret of the challenge, which the use of the endorsement key authorises."""
        credential = base64.b64decode(challenge.credential or "", validate=True)
        encrypted = base64.b64decode(challenge.encrypted_secret or "", validate=True)
        (self._directory / "credential").write_bytes(CREDENTIAL_HEADER + credential + encrypted)
        await self._run("startauthsession", "-Q", "--policy-session", "-S", "session.ctx")
        try:
            await self._run("policysecret", "-Q", "-S", "session.ctx", "-c", "e")
            await self._run(
                "activatecredential", "-Q", "-c", "ak.ctx", "-C", "ek.ctx", "-i", "credential", "-o", "secret",
                "-P", "session:session.ctx",
            )  # fmt: skip
        finally:
            await self._run("flushcontext", "session.ctx")
            await self._flush()
        return (self._directory / "secret").read_bytes()

    async def quote(self, data: bytes) -> Attestation:
        await self._run(
            "quote", "-Q", "-c", "ak.ctx", "-l", PCRS, "-q", data.hex(), "-m", "quote", "-s", "signature", "-f", "plain",
            "-g", "sha256", "-o", "pcrs", "-F", "values",
        )  # fmt: skip
        await self._flush()
        return Attestation(quote=self._encoded("quote"), signature=self._encoded("signature"))

    async def end_lockout(self) -> None:
        """Set the counter of wrong secrets back, by the lockout authorisation, which is empty unless an owner has set it."""
        await self._run("dictionarylockout", "-Q", "-c")

    def pcrs(self) -> list[str]:
        """The PCRs of the last quote, in hex. Raises TpmFailed if the program has not written all of them."""
        content = (self._directory / "pcrs").read_bytes()
        if len(content) != PCR_COUNT * PCR_BYTES:
            raise TpmFailed(f"tpm2_quote wrote {len(content)} bytes of PCRs instead of {PCR_COUNT * PCR_BYTES}")
        return [content[at : at + PCR_BYTES].hex() for at in range(0, len(content), PCR_BYTES)]

    async def _flush(self) -> None:
        """Remove transient objects: behind no resource manager a TPM holds only three."""
        await self._run("flushcontext", "-t")

    def _encoded(self, file: str) -> str:
        return base64.b64encode((self._directory / file).read_bytes()).decode()

    async def _run(self, program: str, *arguments: str) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                f"tpm2_{program}", *arguments, cwd=self._directory, env=self._environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise TpmFailed(f"tpm2_{program} cannot be started; install tpm2-tools ({error.strerror})") from error
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                _, errors = await process.communicate()
        except TimeoutError as error:
            raise TpmFailed(f"tpm2_{program} took longer than {CALL_SECONDS_MAX:.0f} s") from error
        finally:
            if process.returncode is None:
                # With what it started: a child that goes on would hold the pipe open that `wait` waits for.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines()
            said = next((line for line in lines if "tpm:" in line), lines[0] if lines else "no reason")
            raise TpmFailed(f"tpm2_{program} failed: {said[:300]}")
