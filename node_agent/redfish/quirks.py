"""Peculiarities of vendors' BMCs: each is one row of `QUIRKS`, is recognised by what the BMC sends, and has a test.

No vendor's name is compared: firmware of one vendor differs from version to version.
How to add one: docs/how-to/metal/write-a-vendor-quirk.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from berth.process.json_objects import JsonObject
from node_agent.redfish.documents import Document, messages


@dataclass(frozen=True)
class Quirk:
    """One peculiarity: where it was seen, by which sign it is recognised, what the client does, and the source of this."""

    name: str
    seen_on: str
    sign: str
    conduct: str
    source: str


SESSION_WITHOUT_LOCATION: Final = Quirk(
    "session_without_location",
    "HPE iLO",
    "the answer to a login has no Location",
    "the session's link is the body's `@odata.id`; without one the session is left to its timeout",
    "sushy 5.14.0, json_samples/session_creation_headers_no_location.json",
)
SESSIONS_LINK_MISSING: Final = Quirk(
    "sessions_link_missing",
    "early services",
    "the service root has `SessionService`, and no `Links.Sessions`",
    "the link is read from the session service, with basic authentication",
    "sushy 5.14.0, json_samples/bare_minimum_root.json, session_service.json",
)
WEAK_ETAG: Final = Quirk(
    "weak_etag",
    "several (sushy: connector._etag_handler)",
    "412 although the resource still has the same weak ETag",
    "the PATCH is sent again with the strong form of the ETag",
    "sushy 5.14.0, connector.py, _etag_handler",
)
SETTINGS_OBJECT: Final = Quirk(
    "settings_object",
    "Nokia OpenEdge (AMI)",
    "the system's settings object has `Boot.BootSourceOverrideTarget`",
    "the boot override is written there and read back there; other settings objects (Lenovo SE450) are left alone",
    "sushy 5.14.0, json_samples/settings-nokia.json, settings-lenovo-se450.json",
)
INSERT_BY_PATCH: Final = Quirk(
    "insert_by_patch",
    "Lenovo SD530; 24 of 25 media in DMTF's mockups",
    "a virtual medium without an InsertMedia action",
    "PATCH of Image, Inserted and WriteProtected",
    "sushy 5.14.0, json_samples/virtual_mediav1_6.json; resources/manager/virtual_media.py",
)
TRANSFER_PROTOCOL_REQUIRED: Final = Quirk(
    "transfer_protocol_required",
    "AMI MegaRAC, Cisco C845A",
    "InsertMedia is answered 400, ActionParameterMissing, TransferProtocolType",
    "InsertMedia once more with `TransferProtocolType`: the 400 says that nothing was done",
    "sushy 5.14.0, json_samples/transfer_proto_required_error.json, and 2 to 4",
)
TRANSFER_METHOD_REQUIRED: Final = Quirk(
    "transfer_method_required",
    "older AMI MegaRAC",
    "InsertMedia is answered 400, GeneralError, with TransferMethod in the message",
    "InsertMedia once more with `TransferMethod: Stream`",
    "sushy 5.14.0, json_samples/transfer_method_required_error.json",
)
CREDENTIALS_REQUIRED: Final = Quirk(
    "credentials_required",
    "NVIDIA DGX",
    "InsertMedia is answered 400, ActionParameterMissing, UserName and Password",
    "InsertMedia once more with the name and password `none`",
    "sushy 5.14.0, json_samples/credentials_required_error.json",
)
MANAGED_BY_MISSING: Final = Quirk(
    "managed_by_missing",
    "early services",
    "the system has no `Links.ManagedBy`",
    "`Links.Managers`, else the only member of the managers' collection",
    "sushy 5.14.0, json_samples/system_managedby_missing_manager_present.json",
)
RESET_TYPES_UNLISTED: Final = Quirk(
    "reset_types_unlisted",
    "24 of 57 systems in DMTF's mockups",
    "the reset action names neither allowable values nor an ActionInfo",
    "the specification's value is sent; only the power state proves anything anyway",
    "DMTF Redfish-Publications, mockups",
)
PARTIAL_TASK: Final = Quirk(
    "partial_task",
    "several (sushy: taskmonitor._get_task_json_doc)",
    "a task monitor answers 202 with an incomplete or empty body",
    "the task counts as running",
    "sushy 5.14.0, taskmonitor.py",
)

QUIRKS: Final[tuple[Quirk, ...]] = (
    SESSION_WITHOUT_LOCATION,
    SESSIONS_LINK_MISSING,
    WEAK_ETAG,
    SETTINGS_OBJECT,
    INSERT_BY_PATCH,
    TRANSFER_PROTOCOL_REQUIRED,
    TRANSFER_METHOD_REQUIRED,
    CREDENTIALS_REQUIRED,
    MANAGED_BY_MISSING,
    RESET_TYPES_UNLISTED,
    PARTIAL_TASK,
)


def insert_parameters_missing(error: JsonObject, body: JsonObject) -> tuple[Quirk, JsonObject] | None:
    """What a 400 to InsertMedia says is missing in `body`; None if it says nothing of the kind."""
    missing = set()
    for message in messages(error, "error", "@Message.ExtendedInfo"):
        named = (*message.texts("MessageArgs"), *message.texts("RelatedProperties"), message.text("Message"))
        words = {word for text in named for word in re.findall(r"[A-Za-z]+", text)}
        if message.text("MessageId").endswith((".ActionParameterMissing", ".GeneralError")):
            missing |= words
    if "TransferProtocolType" in missing and "TransferProtocolType" not in body:
        return TRANSFER_PROTOCOL_REQUIRED, {"TransferProtocolType": urlsplit(str(body["Image"])).scheme.upper()}
    if "TransferMethod" in missing and "TransferMethod" not in body:
        return TRANSFER_METHOD_REQUIRED, {"TransferMethod": "Stream"}
    if {"UserName", "Password"} & missing and "UserName" not in body:
        return CREDENTIALS_REQUIRED, {"UserName": "none", "Password": "none"}
    return None


def strong_etag(etag: str | None) -> str | None:
    """The strong form of a weak ETag; None for another one."""
    match = re.fullmatch(r'W/("[^"]*")', etag or "")
    return match[1] if match else None


def settings_hold_override(settings: Document) -> bool:
    """Whether the boot override of a system is written to this settings object."""
    return bool(settings.text("Boot", "BootSourceOverrideTarget"))
