"""The manager is the object mapper: it has rows of any table as objects, read, written and deleted with what they
relate to."""
