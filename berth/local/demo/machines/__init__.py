"""`make demo DRIVER=redfish`: emulated bare-metal machines from enrolment to their second tenant, each step proven or named."""
