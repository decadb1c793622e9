"""The base of every request type: closed to unknown fields, strict about types, bounded, and storable.

PostgreSQL's text and jsonb refuse U+0000, so it is refused here, as 422. Text that terminals show contains no control
characters and no marks that change the direction of text (Unicode TR 36, bidirectional text spoofing).
Lone surrogates are no Unicode text: pydantic refuses them in every constrained string.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from berth.process.bounded_models import BoundedModel, at_most, check_members
from berth.process.json_objects import JsonObject
from orchestrator.http.types.cloud_config import usable_user_data

INT32_MAX = 2**31 - 1
LABELS_MAX = 64
SSH_KEYS_MAX = 64
USER_DATA_LENGTH_MAX = 65_536
VARIANT = "variant:"
"""The prefix of the tags of a body's variants; clients never see them (http/problem_documents.py)."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
UNSHOWN = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Part of a character class: C1 controls, line and paragraph separators, marks of direction."""
REGION_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
NODE_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
CSR_PATTERN = (
    r"^\s*-----BEGIN (NEW )?CERTIFICATE REQUEST-----[A-Za-z0-9+/=\s]*-----END (NEW )?CERTIFICATE REQUEST-----\s*$"
)

# Documented, not validated: what reads a signing request says what is wrong with it.
SigningRequest = Annotated[
    str, Field(max_length=10_000, json_schema_extra={"format": "pkcs10-pem", "pattern": CSR_PATTERN})
]


class Request(BoundedModel):
    """A request body: no unknown fields, no coercion from one type to another."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Variant(BaseModel):
    """As `Request`, for the variants of a discriminated union; it does not accept a `BoundedModel`."""

    model_config = Request.model_config

    @model_validator(mode="before")
    @classmethod
    def count_members(cls, value: Any) -> Any:
        """Refuse far too many members before one is validated."""
        return check_members(value, len(cls.model_fields))


class Nothing(Request):
    """The body of a write that needs none: `{}` or nothing at all."""


def describe_map(schema: JsonObject) -> None:
    """Describe the names of a map by `propertyNames`: client generators ignore `patternProperties` and send nothing."""
    ((pattern, values),) = schema.pop("patternProperties").items()
    schema |= {"additionalProperties": values, "propertyNames": {"pattern": pattern}}


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 8.0 is the integer 8 (JSON Schema 2020-12, §6.1.1). 8.5, "8" and true are not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_blank(value: str) -> str:
    """Refuse a value of white space alone. The OpenAPI document says so by a pattern that requires another character."""
    if not value.strip():
        raise PydanticCustomError("blank", "must not be blank")
    return value


# Last in an annotation: bounds before it apply to the integer and stay visible in the OpenAPI document.
WHOLE = BeforeValidator(_whole)
Id = Annotated[UUID, Field(strict=False)]
Printable = Annotated[
    str,
    Field(
        pattern=rf"^[^\x00-\x1f{UNSHOWN}]+$",
        max_length=100,
        json_schema_extra={
            "pattern": rf"^[^\x00-\x1f{UNSHOWN}]*[^\s\x00-\x1f{UNSHOWN}][^\x00-\x1f{UNSHOWN}]*$",
        },
    ),
    AfterValidator(_not_blank),
]
Sentence = Annotated[
    str,
    Field(
        pattern=rf"^[^\x00-\x08\x0b-\x1f{UNSHOWN}]+$",
        max_length=1_000,
        json_schema_extra={
            "pattern": rf"^[^\x00-\x08\x0b-\x1f{UNSHOWN}]*[^\s\x00-\x1f{UNSHOWN}][^\x00-\x08\x0b-\x1f{UNSHOWN}]*$",
        },
    ),
    AfterValidator(_not_blank),
]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
RegionName = Annotated[str, Field(pattern=REGION_PATTERN)]
NodeName = Annotated[str, Field(pattern=NODE_PATTERN)]
HardwareId = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,200}$")]
LabelKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,63}$")]
LabelValue = Annotated[str, Field(pattern=rf"^[^\x00-\x1f{UNSHOWN}]*$", max_length=255)]
Labels = Annotated[
    dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX, json_schema_extra=describe_map), at_most(LABELS_MAX)
]
SshKeyIds = Annotated[list[Id], Field(min_length=1, max_length=SSH_KEYS_MAX)]
UserData = Annotated[
    str,
    Field(
        pattern=r"^[^\x00]*$",
        max_length=USER_DATA_LENGTH_MAX,
        description="for the first start of the guest; what begins with #cloud-config must be a YAML mapping",
    ),
    AfterValidator(usable_user_data),
]
