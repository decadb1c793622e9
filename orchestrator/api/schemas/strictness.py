"""The types that every body is made of: no coercion, no unknown fields, no text that Postgres cannot keep."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Body(BaseModel):
    """A request body: closed and strict, so that a misspelt field is an error and "2" is not 2."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class View(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="forbid")


def _storable(value: str) -> str:
    """Refuse NUL and lone surrogates: they are text in JSON, but not in Postgres."""
    if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must not contain NUL or lone surrogates")
    return value


Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, Field(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=1, le=2_147_483_647)]
