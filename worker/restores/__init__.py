"""What is left to do after a restore of the database to an earlier moment."""
