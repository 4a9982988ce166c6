"""The audit log: who did what is listed, and old entries are deleted. `database.audit` writes it, for all features."""
