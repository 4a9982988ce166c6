"""The command line of knowledge."""
