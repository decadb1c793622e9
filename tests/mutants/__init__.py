"""One-line mutations that remove a guard of the product, each with the tests that catch it."""
