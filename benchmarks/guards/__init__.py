"""What the guards of a create cost."""
