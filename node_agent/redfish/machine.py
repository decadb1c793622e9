"""Resources of one machine behind its BMC: the system, its manager and its allowable values, found by links alone."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.documents import Document
from node_agent.redfish.problems import BmcProblem, NotSupported, ValueNotAllowed
from node_agent.redfish.quirks import MANAGED_BY_MISSING, SETTINGS_OBJECT, settings_hold_override
from node_agent.redfish.session import Session

SYSTEMS_MAX: Final = 64


class Machine:
    """Finds the resources of the system `system_id`, or of the BMC's only system."""

    def __init__(self, session: Session, system_id: str | None) -> None:
        self.session = session
        self._system_id = system_id
        self._system_path: str | None = None

    async def system(self) -> Document:
        """The system as it is now. Raises NotSupported if the BMC has another number of systems than one and none was chosen."""
        if self._system_path is None:
            self._system_path = await self._find_system()
        return await self.session.get(self._system_path, "the system")

    async def _find_system(self) -> str:
        root = await self.session.root()
        systems, more = await self.session.members(root.link("Systems"), "systems", SYSTEMS_MAX)
        wanted = [s for s in systems if self._system_id is None or s.text("Id") == self._system_id]
        if more or len(wanted) != 1:
            which = "the only system" if self._system_id is None else f"system {self._system_id}"
            raise NotSupported(
                f"{which} cannot be chosen: the BMC has {len(systems)} systems, {len(wanted)} of them fit"
            )
        return wanted[0].path

    async def manager(self, system: Document) -> Document:
        """The manager of the system. Raises NotSupported if none can be found for certain."""
        for links in ("ManagedBy", "Managers"):
            if first := next(system.parts("Links", links), None):
                if links == "Managers":
                    self.session.wire.met(MANAGED_BY_MISSING)
                return await self.session.get(first.text("@odata.id"), "the manager")
        managers, more = await self.session.members((await self.session.root()).link("Managers"), "managers", 2)
        if more or len(managers) != 1:
            raise NotSupported("the system names no manager, and the BMC has another number of them than one")
        self.session.wire.met(MANAGED_BY_MISSING)
        return managers[0]

    async def boot_resource(self) -> Document:
        """The resource to which the boot override is written: the system, or its settings object where that holds it."""
        system = await self.system()
        if link := system.link("@Redfish.Settings", "SettingsObject"):
            try:
                settings = await self.session.get(link, "the settings object", attempts=1)
            except BmcProblem:
                return system
            if settings_hold_override(settings):
                self.session.wire.met(SETTINGS_OBJECT)
                return settings
        return system


def action_path(session: Session, resource: Document, name: str) -> str | None:
    """The target of an action; None if the resource does not offer it."""
    target = resource.text("Actions", f"#{name}", "target")
    return session.wire.path_of(target, f"the action {name}") if target else None


async def allowed_values(session: Session, resource: Document, action: str, parameter: str) -> tuple[str, ...]:
    """The values that an action names for a parameter, in the resource or in its ActionInfo; empty if it names none."""
    offered = resource.part("Actions", f"#{action}")
    if listed := offered.texts(f"{parameter}@Redfish.AllowableValues"):
        return listed
    if link := offered.text("@Redfish.ActionInfo"):
        info = await session.get(link, f"the parameters of {action}")
        for described in info.parts("Parameters"):
            if described.text("Name") == parameter:
                return described.texts("AllowableValues")
    return ()


def check_allowed(value: str, allowed: tuple[str, ...], what: str) -> None:
    """Raises ValueNotAllowed if the BMC lists values and this is none of them."""
    if allowed and value not in allowed:
        raise ValueNotAllowed(f"{what} {value} is none of the values that the BMC allows: {', '.join(allowed[:20])}")
