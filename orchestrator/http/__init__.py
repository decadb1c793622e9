"""What every endpoint uses: principals, paging, problem documents, writes under an operation key."""
