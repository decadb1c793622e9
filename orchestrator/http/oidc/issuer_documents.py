"""Fetches an issuer's public keys over HTTP, within bounds of time and size.

Only https, or http on this very host; no redirects, no compression, nothing of the proxy variables of the environment.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import orjson

from orchestrator.http.oidc.addresses import is_trustworthy_url
from orchestrator.http.oidc.key_sets import KeySet, UnreadableKeySet, read_key_set

DISCOVERY_PATH = "/.well-known/openid-configuration"


class FetchFailed(Exception):
    """The keys were not to be had; the message says why in a few words."""


class IssuerDocuments:
    """Where one issuer publishes its keys: at `key_set_url`, or where its discovery document says."""

    def __init__(
        self,
        issuer: str,
        key_set_url: str | None,
        *,
        timeout_seconds: float,
        bytes_max: int,
        ca_certificate_file: Path | None,
    ) -> None:
        """Connects to nothing. Raises OSError for an unusable certificate file."""
        self._issuer = issuer
        self._key_set_url = key_set_url
        self._timeout_seconds = timeout_seconds
        self._bytes_max = bytes_max
        if ca_certificate_file is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        else:
            self._tls = ssl.create_default_context(cafile=str(ca_certificate_file))

    async def fetch_key_set(self) -> KeySet:
        """The keys as published now. Raises `FetchFailed`, after `timeout_seconds` at the latest."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                async with httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False) as http:
                    url = self._key_set_url or await self._discovered_url(http)
                    return read_key_set(await self._read(http, url))
        except TimeoutError as error:
            raise FetchFailed(f"no answer within {self._timeout_seconds:g} s") from error
        except UnreadableKeySet as error:
            raise FetchFailed(str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            raise FetchFailed(f"{type(error).__name__}: {error}"[:300]) from error

    async def _discovered_url(self, http: httpx.AsyncClient) -> str:
        try:
            document = orjson.loads(await self._read(http, self._issuer.rstrip("/") + DISCOVERY_PATH))
        except orjson.JSONDecodeError as error:
            raise FetchFailed("the discovery document is not JSON") from error
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            raise FetchFailed("the discovery document is of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_trustworthy_url(url):
            raise FetchFailed("the discovery document names no https address of a key set")
        return url

    async def _read(self, http: httpx.AsyncClient, url: str) -> bytes:
        headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "berth"}
        async with http.stream("GET", url, headers=headers) as answer:
            if answer.status_code != 200:
                raise FetchFailed(f"the issuer answered {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise FetchFailed("the issuer answered compressed, which was not asked for")
            read = bytearray()
            async for piece in answer.aiter_raw():
                read += piece
                if len(read) > self._bytes_max:
                    raise FetchFailed(f"a document has more than {self._bytes_max} bytes")
            return bytes(read)
