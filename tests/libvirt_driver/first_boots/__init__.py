"""First boots of guests: of played ones, of the mini guest, and of Debian."""
