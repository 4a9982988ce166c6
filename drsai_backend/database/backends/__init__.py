"""A backend is a kind of database: SQLite or PostgreSQL."""
