"""The resources of the stub as JSON, by path."""

from __future__ import annotations

from typing import Any

from tests.support.bmc.machine import MANAGER, SYSTEM, StubMachine

Resource = dict[str, Any]
ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
ACCOUNTS = "/redfish/v1/AccountService/Accounts"
FIRMWARE = "/redfish/v1/UpdateService/FirmwareInventory"
TASKS = "/redfish/v1/TaskService/Tasks"
UUID = "38947555-7742-3448-3784-823347823834"
ROLES = {
    "Administrator": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"],
    "Operator": ["Login", "ConfigureComponents", "ConfigureSelf"],
    "ReadOnly": ["Login", "ConfigureSelf"],
}
OK = {"State": "Enabled", "Health": "OK"}


def link(path: str) -> Resource:
    return {"@odata.id": path}


def resource(path: str, kind: str, **more: Any) -> Resource:
    """A resource with the properties that each must have; `kind` is Type.vX_Y_Z."""
    name = kind.partition(".")[0]
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}.{name}",
        "Id": path.rstrip("/").rpartition("/")[2],
        "Name": name,
    } | more


def collection(path: str, kind: str, members: list[str]) -> Resource:
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} collection",
        "Members@odata.count": len(members),
        "Members": [link(member) for member in members],
    }


def media_base(machine: StubMachine) -> str:
    return f"{SYSTEM if machine.options.media_of_system else MANAGER}/VirtualMedia"


def tree(machine: StubMachine) -> dict[str, Resource]:
    """Every resource as it is now."""
    return (
        _services(machine)
        | _system(machine)
        | _manager(machine)
        | _media(machine)
        | _update(machine)
        | _sessions(machine)
    )


def _services(machine: StubMachine) -> dict[str, Resource]:
    root = resource(
        ROOT,
        "ServiceRoot.v1_15_0",
        Id="RootService",
        RedfishVersion="1.17.0",
        UUID=UUID,
        Product="Berth stub BMC",
        ProtocolFeaturesSupported={
            "ExcerptQuery": False,
            "FilterQuery": False,
            "OnlyMemberQuery": False,
            "SelectQuery": False,
        },
        Systems=link("/redfish/v1/Systems"),
        Managers=link("/redfish/v1/Managers"),
        AccountService=link("/redfish/v1/AccountService"),
        UpdateService=link("/redfish/v1/UpdateService"),
        Tasks=link("/redfish/v1/TaskService"),
        Links={},
    )
    if machine.options.sessions:
        root["SessionService"] = link("/redfish/v1/SessionService")
        root["Links"] = {"Sessions": link(SESSIONS)} if machine.options.sessions_link else {}
    account = resource(
        f"{ACCOUNTS}/1",
        "ManagerAccount.v1_9_0",
        UserName="berth",
        Password=None,
        RoleId="Administrator",
        Enabled=True,
        Locked=False,
        AccountTypes=["Redfish"],
        Links={"Role": link("/redfish/v1/AccountService/Roles/Administrator")},
    )
    roles = "/redfish/v1/AccountService/Roles"
    return {
        ROOT: root,
        "/redfish/v1/AccountService": resource(
            "/redfish/v1/AccountService",
            "AccountService.v1_12_0",
            Status=OK,
            ServiceEnabled=True,
            MinPasswordLength=8,
            MaxPasswordLength=256,
            AccountLockoutThreshold=machine.options.lockout_after,
            Accounts=link(ACCOUNTS),
            Roles=link(roles),
        ),
        ACCOUNTS: collection(ACCOUNTS, "ManagerAccount", [f"{ACCOUNTS}/1"]),
        f"{ACCOUNTS}/1": account,
        roles: collection(roles, "Role", [f"{roles}/{name}" for name in ROLES]),
        **{
            f"{roles}/{name}": resource(
                f"{roles}/{name}", "Role.v1_3_1", RoleId=name, IsPredefined=True, AssignedPrivileges=given
            )
            for name, given in ROLES.items()
        },
    }


def _boot(machine: StubMachine) -> Resource:
    return {
        "BootSourceOverrideTarget": machine.override["target"],
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "Hdd", "UefiHttp"],
        "BootSourceOverrideEnabled": machine.override["enabled"],
    }


def _system(machine: StubMachine) -> dict[str, Resource]:
    options = machine.options
    nics, storage, logs = f"{SYSTEM}/EthernetInterfaces", f"{SYSTEM}/Storage", f"{SYSTEM}/LogServices"
    reset: Resource = {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset"}
    if options.action_info:
        reset["@Redfish.ActionInfo"] = f"{SYSTEM}/ResetActionInfo"
    elif options.reset_types is not None:
        reset["ResetType@Redfish.AllowableValues"] = list(options.reset_types)
    system = resource(
        SYSTEM,
        "ComputerSystem.v1_20_0",
        SystemType="Physical",
        Manufacturer="Contoso",
        Model="3500",
        SerialNumber="437XR1138R2",
        UUID=UUID.upper(),
        BiosVersion="2.45",
        PowerState=machine.power,
        Status=OK,
        ProcessorSummary={"Count": 2, "Model": "Xeon"},
        MemorySummary={"TotalSystemMemoryGiB": 96},
        EthernetInterfaces=link(nics),
        Storage=link(storage),
        LogServices=link(logs),
        Links={"ManagedBy": [link(MANAGER)]} if options.managed_by else {},
        Actions={"#ComputerSystem.Reset": reset},
    )
    found = {"/redfish/v1/Systems": collection("/redfish/v1/Systems", "ComputerSystem", [SYSTEM]), SYSTEM: system}
    if options.settings_object:
        system["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{SYSTEM}/SD"),
        }
        found[f"{SYSTEM}/SD"] = resource(f"{SYSTEM}/SD", "ComputerSystem.v1_20_0", Boot=_boot(machine))
    else:
        system["Boot"] = _boot(machine)
    if options.media_of_system:
        system["VirtualMedia"] = link(media_base(machine))
    if options.console is not None:
        system["SerialConsole"] = options.console()
    return found | _parts(machine, nics, storage) | _logs(machine, logs)


def _parts(machine: StubMachine, nics: str, storage: str) -> dict[str, Resource]:
    nic = resource(
        f"{nics}/1", "EthernetInterface.v1_9_0", MACAddress="52:54:00:AA:BB:01", LinkStatus="LinkUp", Status=OK
    )
    drive = resource(
        f"{storage}/1/Drives/0",
        "Drive.v1_17_0",
        Model="C123",
        SerialNumber="1234570",
        CapacityBytes=899527000000,
        Protocol="NVMe",
        Status=OK,
    )
    controller = resource(f"{storage}/1", "Storage.v1_15_0", Status=OK, Drives=[link(f"{storage}/1/Drives/0")])
    return {
        nics: collection(nics, "EthernetInterface", [f"{nics}/1"]),
        f"{nics}/1": nic,
        storage: collection(storage, "Storage", [f"{storage}/1"]),
        f"{storage}/1": controller,
        f"{storage}/1/Drives/0": drive,
        f"{SYSTEM}/ResetActionInfo": resource(
            f"{SYSTEM}/ResetActionInfo",
            "ActionInfo.v1_3_0",
            Parameters=[
                {"Name": "ResetType", "Required": True, "AllowableValues": list(machine.options.reset_types or ())}
            ],
        ),
    }


def _logs(machine: StubMachine, logs: str) -> dict[str, Resource]:
    entries = f"{logs}/SEL/Entries"
    found = {
        logs: collection(logs, "LogService", [f"{logs}/SEL"]),
        f"{logs}/SEL": resource(
            f"{logs}/SEL", "LogService.v1_4_0", OverWritePolicy="WrapsWhenFull", Entries=link(entries)
        ),
        entries: collection(entries, "LogEntry", [f"{entries}/{number}" for number in range(1, len(machine.log) + 1)]),
    }
    for number, (created, severity, message) in enumerate(machine.log, 1):
        path = f"{entries}/{number}"
        found[path] = resource(
            path, "LogEntry.v1_15_0", EntryType="SEL", Created=created, Severity=severity, Message=message
        )
    return found


def _manager(machine: StubMachine) -> dict[str, Resource]:
    manager = resource(
        MANAGER,
        "Manager.v1_18_0",
        ManagerType="BMC",
        Model="Joo Janta 200",
        FirmwareVersion=machine.firmware,
        LastResetTime=f"2026-01-01T00:00:{machine.restarts % 60:02d}Z",
        Status=OK,
        Links={"ManagerForServers": [link(SYSTEM)]},
        Actions={
            "#Manager.Reset": {
                "target": f"{MANAGER}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["ForceRestart", "GracefulRestart"],
            }
        },
    )
    if not machine.options.states_last_reset:
        del manager["LastResetTime"]
    if not machine.options.media_of_system:
        manager["VirtualMedia"] = link(media_base(machine))
    found = {"/redfish/v1/Managers": collection("/redfish/v1/Managers", "Manager", [MANAGER]), MANAGER: manager}
    if machine.options.manager_console is not None:
        protocols = f"{MANAGER}/NetworkProtocol"
        manager["SerialConsole"], manager["NetworkProtocol"] = machine.options.manager_console, link(protocols)
        found[protocols] = resource(
            protocols, "ManagerNetworkProtocol.v1_9_0", SSH={"ProtocolEnabled": True, "Port": 22}
        )
    return found


def _media(machine: StubMachine) -> dict[str, Resource]:
    base = media_base(machine)
    floppy = resource(
        f"{base}/Floppy1", "VirtualMedia.v1_6_1", MediaTypes=["Floppy", "USBStick"], Image=None, Inserted=False
    )
    cd = resource(
        f"{base}/CD1",
        "VirtualMedia.v1_6_1",
        MediaTypes=["CD", "DVD"],
        Image=machine.image,
        Inserted=machine.image is not None,
        WriteProtected=True,
        ConnectedVia="URI" if machine.image else "NotConnected",
    )
    if machine.options.media_actions:
        actions = f"{base}/CD1/Actions"
        cd["Actions"] = {
            "#VirtualMedia.InsertMedia": {"target": f"{actions}/VirtualMedia.InsertMedia"},
            "#VirtualMedia.EjectMedia": {"target": f"{actions}/VirtualMedia.EjectMedia"},
        }
    return {
        base: collection(base, "VirtualMedia", [f"{base}/Floppy1", f"{base}/CD1"]),
        f"{base}/Floppy1": floppy,
        f"{base}/CD1": cd,
    }


def _update(machine: StubMachine) -> dict[str, Resource]:
    service = resource(
        "/redfish/v1/UpdateService",
        "UpdateService.v1_14_0",
        ServiceEnabled=True,
        Status=OK,
        FirmwareInventory=link(FIRMWARE),
        Actions={
            "#UpdateService.SimpleUpdate": {
                "target": "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate",
                "TransferProtocol@Redfish.AllowableValues": ["HTTPS", "HTTP"],
            }
        },
    )
    item = resource(
        f"{FIRMWARE}/BMC", "SoftwareInventory.v1_10_0", Version=machine.firmware, Updateable=True, Status=OK
    )
    found = {
        "/redfish/v1/UpdateService": service,
        FIRMWARE: collection(FIRMWARE, "SoftwareInventory", [f"{FIRMWARE}/BMC"]),
        f"{FIRMWARE}/BMC": item,
        "/redfish/v1/TaskService": resource(
            "/redfish/v1/TaskService", "TaskService.v1_2_0", ServiceEnabled=True, Tasks=link(TASKS)
        ),
        TASKS: collection(TASKS, "Task", [f"{TASKS}/{number}" for number in machine.tasks]),
    }
    resets = {"host": f"{SYSTEM}/Actions/ComputerSystem.Reset", "bmc": f"{MANAGER}/Actions/Manager.Reset"}
    said = [
        {"MessageId": "Base.1.16.ResetRequired", "MessageArgs": [resets[by], "ForceRestart"]}
        for by in resets
        if by == machine.options.update_applies
    ]
    for number, until in machine.tasks.items():
        done = machine.clock.now() >= until
        state, health = (machine.options.task_state, "OK") if done else ("Running", "OK")
        path = f"{TASKS}/{number}"
        found[path] = resource(
            path, "Task.v1_7_2", TaskState=state, TaskStatus=health, TaskMonitor=f"/taskmon/{number}", Messages=said
        )
    return found


def _sessions(machine: StubMachine) -> dict[str, Resource]:
    if not machine.options.sessions:
        return {}
    found = {
        "/redfish/v1/SessionService": resource(
            "/redfish/v1/SessionService",
            "SessionService.v1_1_8",
            ServiceEnabled=True,
            SessionTimeout=600,
            Sessions=link(SESSIONS),
        ),
        SESSIONS: collection(SESSIONS, "Session", [f"{SESSIONS}/{token[:8]}" for token in machine.sessions]),
    }
    for token, name in machine.sessions.items():
        path = f"{SESSIONS}/{token[:8]}"
        found[path] = resource(path, "Session.v1_6_0", UserName=name, Password=None)
    return found
