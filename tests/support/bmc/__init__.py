"""A stub BMC: one machine behind a Redfish service with sessions, ETags, tasks, accounts, logs, updates, and scripted faults.

It is checked by DMTF's protocol validator (tests/redfish/test_validators.py). `python -m tests.support.bmc` serves it.
"""
