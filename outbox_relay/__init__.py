"""The relay: moves events from the outbox into the log, and from the log to NATS.

The two steps never wait for each other (DESIGN §7). Sequencing gives every committed outbox row its version, gapless
and never before its cause; the database does it (`log_advance`) and any number of relays may ask for it. Publishing
copies the log to a JetStream stream in which a message's stream sequence is its version; NATS refuses all publishers
but one. Nothing is marked as published: where to go on is read from the stream, so that a relay may be killed at any
instruction, and either server may restart, without a lost, doubled or reordered message in the stream.

The relay knows outbox and log rows and NATS, and nothing of what the events mean.
"""
