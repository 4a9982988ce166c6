"""Users are listed, and deleted with all that is theirs."""
