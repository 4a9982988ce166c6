"""All runs are those of all users, for who operates the servers: found, stopped, paused, resumed and retried."""
