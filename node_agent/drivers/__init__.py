"""What carries tasks out on a node: one interface (`interface`), one implementation per kind of node."""
