"""The agent that runs on a node: it claims signed tasks over mTLS and drives the hardware.

It is the smallest trusted base of Berth: no SQLAlchemy, NATS or Temporal is imported here, and of our own
packages the server may import only `node_agent.protocol`.
"""
