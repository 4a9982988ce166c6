"""`/v1/files`, and files that requests name."""
