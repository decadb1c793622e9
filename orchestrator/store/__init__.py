"""The only SQL of the control plane. Functions take a transaction and are named after what they guarantee."""
