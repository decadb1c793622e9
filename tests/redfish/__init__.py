"""The Redfish client against the stub BMC, vendors' samples, DMTF's validators and the emulator of sushy-tools."""
