"""What must hold of changes of the fleet and of the catalogue."""
