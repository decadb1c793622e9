"""Activities: each calls exactly one command and says in plain values what came of it."""
