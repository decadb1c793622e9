"""Which mutants `make mutants` plants, by how long their tests take."""
