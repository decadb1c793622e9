"""Tools of others read Berth's documents; they are installed for the test (`make test-full`)."""
