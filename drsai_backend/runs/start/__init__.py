"""Starting a run is a pipeline of finished values: read → plan → build → load → store. See `starter`."""
