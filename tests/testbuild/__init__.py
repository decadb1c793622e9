"""The test build: processes of ours started with a crash point armed or a bug planted. No part of the product."""
