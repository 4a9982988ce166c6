"""Threads of users are listed, read, steered and deleted, with what runs on them and asks."""
