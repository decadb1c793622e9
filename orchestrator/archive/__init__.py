"""What the archive of ended allocations leaves in the database: its segments and the ids that are in them."""
