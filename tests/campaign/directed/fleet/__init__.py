"""Scenes of operators that change the fleet and the catalogue."""
