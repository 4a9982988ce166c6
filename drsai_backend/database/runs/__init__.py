"""The rows of runs are read and written by the statements here."""
