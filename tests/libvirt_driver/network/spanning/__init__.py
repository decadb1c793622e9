"""Networks that span nodes: each node is a network namespace with its own agent process."""
