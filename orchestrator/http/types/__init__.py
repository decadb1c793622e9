"""Types of members of requests and answers."""
