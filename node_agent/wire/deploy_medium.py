"""The configuration on a deploy medium: where a deploy system enrols, with which token, and its static network.

The medium is the same for every machine but for a file of `MEDIUM_BYTES_MAX` bytes, which holds this document as JSON,
padded with white space. The root's public keys, which verify the key set, are part of the deploy system and not of this file.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Interface, IPv6Interface, ip_address
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from node_agent.wire.fields import INTEGER_MAX, FromServer, Instant, Whole, first_error, whole

MEDIUM_BYTES_MAX: Final = 8_192
CA_CHARACTERS_MAX: Final = 4_096
PLACEHOLDER: Final = b'{"berth-config-placeholder"'
"""The beginning of the file in a medium that has no configuration yet; the rest is white space."""
MAC: Final = r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"
TOKEN: Final = r"^deploy1\.[A-Za-z0-9_-]{43}$"

Mac = Annotated[str, Field(pattern=MAC)]
Address = Annotated[str, Field(max_length=300, pattern=r"^https://[^/\s]+$")]
DeployEpoch = Annotated[int, Field(strict=True, ge=1, le=INTEGER_MAX), BeforeValidator(whole)]
DeployToken = Annotated[str, Field(pattern=TOKEN)]


class MediumInvalid(Exception):
    """The medium has no usable configuration; the message says why, and repeats no secret."""


class MediumNetwork(FromServer):
    """The network of the deploy system: the interface with this MAC has this address. DHCP is not used."""

    mac: Mac
    address: IPv4Interface | IPv6Interface
    gateway: Annotated[str, Field(max_length=45)] | None = None
    vlan: Annotated[int, Field(strict=True, ge=1, le=4_094)] | None = None
    mtu: Annotated[int, Field(strict=True, ge=576, le=9_216)] | None = None

    @model_validator(mode="after")
    def _gateway_is_a_neighbour(self) -> Self:
        if self.gateway is not None and ip_address(self.gateway) not in self.address.network:
            raise ValueError("gateway must be an address of the network")
        return self


class DeployMedium(FromServer):
    """What a deploy system reads from its medium. A newer control plane may add members; `version` changes if one is vital.

    `api_url`, `ca_pem`: the listener without client certificates, where a deploy system enrols, and the one CA that its
    certificate may come from. `node_api_url`: the node listener, whose CAs the key set names. `key_set_serial`: the deploy
    system uses no key set with a smaller serial.
    """

    version: Literal[1] = 1
    node_id: UUID
    deploy_epoch: DeployEpoch
    api_url: Address
    ca_pem: Annotated[str, Field(max_length=CA_CHARACTERS_MAX)]
    node_api_url: Address
    token: DeployToken
    expires_at: Instant
    key_set_serial: Whole = 0
    network: MediumNetwork

    def written(self) -> bytes:
        """The file, `MEDIUM_BYTES_MAX` bytes. Raises ValueError if it does not fit."""
        content = self.model_dump_json().encode()
        if len(content) >= MEDIUM_BYTES_MAX:
            raise ValueError(f"the configuration has {len(content)} bytes; a medium holds {MEDIUM_BYTES_MAX - 1}")
        return content + b"\n" + b" " * (MEDIUM_BYTES_MAX - 1 - len(content))


def read_medium(content: bytes) -> DeployMedium:
    """The configuration in the file of a medium. Raises MediumInvalid."""
    if len(content) > MEDIUM_BYTES_MAX:
        raise MediumInvalid(f"the configuration has {len(content)} bytes; at most {MEDIUM_BYTES_MAX} are read")
    if content.startswith(PLACEHOLDER):
        raise MediumInvalid("the medium has no configuration: it was not made for one machine")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MediumInvalid("the configuration is not JSON") from error
    try:
        return DeployMedium.model_validate(document)
    except ValidationError as error:
        raise MediumInvalid(f"the configuration is not usable: {first_error(error, 'document')}") from error
