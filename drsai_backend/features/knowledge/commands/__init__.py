"""The commands of `drsai knowledge` have a module of their own, and one for folders."""
