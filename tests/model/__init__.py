"""A reference model of reservations, claims, quotas and operations, and the replay that holds a real run against it.

The model is pure Python over immutable values and imports nothing of what it judges: the rules of docs/reference/reservations.md
are written down here a second time, in the plainest way that is right. `state` holds what there is; `reservations`,
`allocations` and `operations` have one function per command, `(state, command, clock) -> (state, outcome)`; `replaying`
drives them by the log of a run, and `answers` by its clients' requests and responses; `tables` reads both from
PostgreSQL and reports where model and tables differ.
"""
