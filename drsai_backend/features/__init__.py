"""Features are folders, one a noun, each with all of it: verbs, rows, routes, commands. `base` says how one joins."""
