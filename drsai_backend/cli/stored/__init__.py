"""Commands on what a database holds: each of these modules is a group of commands of the same name."""
