"""SQL of this noun; functions take a transaction and are named after what they guarantee."""
