"""The worker: consumes the log, runs a workflow per provisioning and release, delivers webhooks, meters, and sweeps.

Imports run one way: commands <- activities <- workflows <- consumers, sweepers. An activity runs one command. The row in
PostgreSQL is authoritative; events and signals only cause it to be read.
"""
