"""A feature of an application's own: notes of users, with a table, routes, commands and tools; see docs/extensions.md.

`DRSAI_EXTENSIONS=notes:Notes drsai serve`, in the folder above this one, or `DrSai(extensions=[Notes])`.
"""

from .extension import Notes

__all__ = ["Notes"]
