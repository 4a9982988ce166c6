"""Recovery finds and resumes the runs whose worker is gone; leases tell whose they are."""
