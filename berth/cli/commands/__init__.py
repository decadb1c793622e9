"""The commands of `berth`, one module per noun. Libraries that few commands need are imported inside the command."""
