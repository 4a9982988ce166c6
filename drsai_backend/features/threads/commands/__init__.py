"""The commands of `drsai threads`, a module for each subject."""
