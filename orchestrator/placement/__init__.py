"""Pure placement: (inventory, request) -> Decision with its reasons. Same input, same answer."""
