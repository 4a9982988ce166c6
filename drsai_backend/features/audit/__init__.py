"""The audit log shows who did what; old entries are deleted. `database.audit` writes it, for all features."""
