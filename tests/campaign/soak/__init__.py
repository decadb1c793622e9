"""The soak: a campaign without faults for as long as a memory or a table needs to show that it grows."""
