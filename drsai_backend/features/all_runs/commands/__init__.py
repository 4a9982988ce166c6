"""The commands list and end runs of all users, and show what is live."""
