"""Console sessions in the worker: their tasks, and the end of those that no process ends."""
