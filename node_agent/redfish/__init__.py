"""A client of BMCs that speak Redfish: reads, power, boot, media, accounts, logs and firmware of one machine."""
