"""Pure facts of the domain: states, transitions, events, errors. No SQL, no clock, no I/O."""
