"""What the CLI asks Postgres directly, because there is no API for it yet or none that answers: the first admin key
and the doctor's readings. Everything else goes through the API."""
