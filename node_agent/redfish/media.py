"""Virtual media of one machine, under its system or its manager; each change is read back."""

from __future__ import annotations

from typing import Final

from berth.process.json_objects import JsonObject
from node_agent.redfish.contract import BootTarget, Medium, PowerState
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine, action_path
from node_agent.redfish.power import Power
from node_agent.redfish.problems import (
    BmcProblem,
    Conflict,
    NotSupported,
    OutcomeUnknown,
    ValueNotAllowed,
    WithoutEffect,
)
from node_agent.redfish.quirks import INSERT_BY_PATCH, insert_parameters_missing
from node_agent.redfish.tasks import finished
from node_agent.redfish.wire import Answer

TYPES: Final[dict[BootTarget, frozenset[str]]] = {
    BootTarget.CD: frozenset({"CD", "DVD"}),
    BootTarget.USB_CD: frozenset({"USBStick"}),
}
MEDIA_MAX: Final = 32
INSERT_REQUESTS_MAX: Final = 4


class Media:
    """Insert, eject and read of virtual media."""

    def __init__(self, machine: Machine, power: Power) -> None:
        self._machine, self._power, self._session = machine, power, machine.session
        self._deadlines = machine.session.wire.deadlines

    async def read(self, kind: BootTarget) -> Medium:
        """The medium as it is now."""
        return _medium(kind, await self._find(kind))

    async def insert(self, url: str, kind: BootTarget) -> Medium:
        """See `Bmc.insert_medium`."""
        if not url.startswith(("http://", "https://")) or not url.isascii() or any(c <= " " for c in url):
            raise ValueNotAllowed("the medium's URL must be http:// or https://, of printable ASCII")
        reading = await self._power.read()
        if reading.state is not PowerState.OFF or not reading.certain:
            certain = "" if reading.certain else ", and a command may be queued"
            raise Conflict(f"a medium is inserted only while the machine is off; it is {reading.state}{certain}")
        found = await self._find(kind)
        if found.flag("Inserted"):
            await self.eject(kind)
            found = await self._find(kind)
        unanswered: OutcomeUnknown | None = None
        try:
            await finished(self._session, await self._insert(found, url), self._deadlines.insert_seconds)
        except OutcomeUnknown as unknown:
            unanswered = unknown
        return await self._read_back(kind, True, unanswered)

    async def eject(self, kind: BootTarget) -> Medium:
        """See `Bmc.eject_medium`."""
        found = await self._find(kind)
        if found.flag("Inserted") is False and not found.text("Image"):
            return _medium(kind, found)
        unanswered: OutcomeUnknown | None = None
        try:
            path = action_path(self._session, found, "VirtualMedia.EjectMedia")
            if path is None:
                self._session.wire.met(INSERT_BY_PATCH)
                answer = await self._session.patch(found.path, {"Image": None, "Inserted": False})
            else:  # an empty object: HPE iLO refuses a POST without a body
                answer = await self._session.post(path, {})
            await finished(self._session, answer, self._deadlines.command_seconds)
        except OutcomeUnknown as unknown:
            unanswered = unknown
        return await self._read_back(kind, False, unanswered)

    async def _insert(self, found: Document, url: str) -> Answer:
        path = action_path(self._session, found, "VirtualMedia.InsertMedia")
        if path is None:
            self._session.wire.met(INSERT_BY_PATCH)
            return await self._session.patch(found.path, {"Image": url, "Inserted": True, "WriteProtected": True})
        # Inserted and WriteProtected are true by default, and Supermicro X11 refuses them.
        body: JsonObject = {"Image": url}
        for _ in range(INSERT_REQUESTS_MAX):
            answer = await self._session.send("POST", path, body, self._deadlines.insert_seconds)
            missing = insert_parameters_missing(answer.json_or_empty(), body) if answer.status == 400 else None
            if missing is None:
                break
            self._session.wire.met(missing[0])
            body |= missing[1]
        return self._session.accepted("POST", answer)

    async def _read_back(self, kind: BootTarget, inserted: bool, unanswered: OutcomeUnknown | None) -> Medium:
        """The medium once it reads back as wanted; some BMCs report it late."""
        wire = self._session.wire
        until = wire.clock.now() + self._deadlines.queue_seconds
        while True:
            try:
                medium = await self.read(kind)
            except BmcProblem:
                if unanswered is None and wire.clock.now() >= until:
                    raise
            else:
                if medium.inserted is inserted:
                    return medium
            if wire.clock.now() >= until:
                what = "inserted" if inserted else "ejected"
                raise unanswered or WithoutEffect(f"the BMC reported success, and the medium reads back as not {what}")
            await wire.clock.sleep(self._deadlines.poll_seconds)

    async def _find(self, kind: BootTarget) -> Document:
        """The first medium of this kind, of the system before its manager. Raises NotSupported."""
        types = TYPES.get(kind)
        if types is None:
            raise ValueNotAllowed(f"{kind} is not a virtual medium; use {', '.join(TYPES)}")
        system = await self._machine.system()
        for owner in (system, None):
            if owner is None:
                owner = await self._manager_of_one(system)
            if (link := owner.link("VirtualMedia")) is None:
                continue
            media, _ = await self._session.members(link, "virtual media", MEDIA_MAX)
            for medium in media:
                if types & set(medium.texts("MediaTypes")):
                    return medium
        raise NotSupported(f"neither the system nor its manager has a virtual medium of the kind {kind}")

    async def _manager_of_one(self, system: Document) -> Document:
        """The manager, if its media can be no other system's."""
        manager = await self._machine.manager(system)
        if len(list(manager.parts("Links", "ManagerForServers"))) > 1:
            raise NotSupported("the manager serves several systems, and the system has no virtual media")
        return manager


def _medium(kind: BootTarget, found: Document) -> Medium:
    image = found.text("Image")
    inserted = found.flag("Inserted")
    return Medium(kind, bool(image) if inserted is None else inserted, found.flag("WriteProtected"), image)
