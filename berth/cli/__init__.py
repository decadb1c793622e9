"""The `berth` command. `main` assembles it; one module per group of commands; `session` is what each command gets."""
