"""The object mapper: rows of any table as objects, read, written and deleted with what they relate to."""
