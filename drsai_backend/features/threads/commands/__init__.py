"""The commands of `drsai threads` have a module for each subject."""
