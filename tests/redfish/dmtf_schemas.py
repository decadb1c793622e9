"""DMTF's schemas of Redfish, from packages of requirements-redfish.lock, and what a resource has against them.

Two outside sources, both installed by `make build/redfish/ready`, neither kept here:

- DMTF's JSON schema files of 2018, as oneview-redfish-toolkit carries them: they judge a resource whole, nested types too.
- An index of DMTF's bundle 2026.1, as mirastack-redfish-mcp carries it (types, their newest versions, addresses, actions, and the
  names of properties of the first level): it judges what is newer than 2018.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator, ValidationError  # type: ignore[import-untyped]
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from tests.redfish.tools import TOOLS

BASE = "http://redfish.dmtf.org/schemas/v1/"
NEWER_NESTED = {
    ("ServiceRoot", "ProtocolFeaturesSupported", "ExcerptQuery"),
    ("ServiceRoot", "ProtocolFeaturesSupported", "OnlyMemberQuery"),
}
"""Properties below the first level that are newer than 2018: both came with ServiceRoot 1.4 and 1.5."""


def _package(file: str) -> Path:
    """A file or folder of an installed package; the test is skipped where it is not."""
    found = sorted(TOOLS.glob(f"lib/python*/site-packages/{file}"))
    if not found:
        pytest.skip(f"{file} is not installed: make build/redfish/ready")
    return found[0]


def version(text: str) -> tuple[int, ...]:
    """The numbers of `v1_20_0`."""
    return tuple(int(one) for one in re.findall(r"\d+", text))


class DmtfSchemas:
    """What DMTF publishes; raises pytest's Skipped where the packages are not installed."""

    def __init__(self) -> None:
        self._files = _package("oneview_redfish_toolkit/schemas")
        with gzip.open(_package("mirastack_redfish_mcp/data/redfish_index.json.gz")) as index:
            self._types: dict[str, Any] = json.load(index)["resource_types"]
        self._registry: Registry[Any] = Registry(retrieve=self._retrieve)  # type: ignore[call-arg]

    @cached_property
    def newest(self) -> dict[str, str]:
        """By type, the schema file of its newest version."""
        found: dict[str, str] = {}
        for file in sorted(self._files.glob("*.json"), key=lambda file: version(file.name.partition(".")[2])):
            found[file.name.partition(".")[0]] = file.name
        return found

    def problems(self, resource: dict[str, Any]) -> list[str]:
        """Each difference between the resource and DMTF's schemas, with the path of the property."""
        name, _, stated = resource["@odata.type"].removeprefix("#").rpartition(".")[0].partition(".")
        known = self._types.get(name)
        if known is None or name not in self.newest:
            return [f"type {name} is unknown"]
        found: list[str] = []
        if stated and version(stated) > version(known["latest_version"]):
            found.append(f"version {stated} of {name} is none of DMTF's")
        if not any(_fits(template, resource["@odata.id"]) for template in known["uris"]):
            found.append(f"{resource['@odata.id']} is no address of {name}")
        file = self.newest[name]
        schema = Draft4Validator({"$ref": BASE + file + self._schema(file).get("$ref", "")}, registry=self._registry)
        for error in schema.iter_errors(resource):
            found += self._of(error, name, known)
        return found

    def is_writable(self, resource: dict[str, Any], name: str) -> bool:
        """Whether a client may write this property of the resource."""
        kind = resource["@odata.type"].removeprefix("#").partition(".")[0]
        return not self._types[kind]["properties"][name].get("readonly", False)

    def _of(self, error: ValidationError, name: str, known: dict[str, Any]) -> list[str]:
        """The problems of one difference: a property that is newer than the file is none."""
        path = [str(one) for one in error.absolute_path]
        where = "/".join([name, *path])
        if error.validator != "additionalProperties":
            return [f"{where}: {error.message}"]
        names = [one for one in error.instance if one not in error.schema["properties"] and "@" not in one]
        newer = known["actions"] if path == ["Actions"] else known["properties"] if not path else {}
        return [
            f"{where}: {one} is unknown" for one in names if one not in newer and (name, *path, one) not in NEWER_NESTED
        ]

    def _schema(self, file: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._files / file).read_text())
        return found

    def _retrieve(self, uri: str) -> Resource[Any]:
        """The file of this address, or, where the package lacks that version, the newest of its type."""
        file = uri.removeprefix(BASE)
        there = (self._files / file).exists()
        return DRAFT4.create_resource(self._schema(file if there else self.newest[file.partition(".")[0]]))


def _fits(template: str, path: str) -> bool:
    """Whether the path is an address by this template, whose variables are segments in braces."""
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template.rstrip("/")), path.rstrip("/")) is not None
