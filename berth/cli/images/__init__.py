"""Commands about images: the catalogue's, and the import."""
