"""The built-in tools come with the package. An agent has those that are named for it, and no others:
`builtin_tools`."""

from drsai_backend.tools.builtin.asking import ask_person
from drsai_backend.tools.builtin.calculator import MAX_DIGITS, MAX_EXPRESSION, calculator
from drsai_backend.tools.builtin.measures import convert_units, current_time
from drsai_backend.tools.builtin.table import NAMES, BuiltinTools, builtin_tools, options_of

__all__ = [
    "MAX_DIGITS",
    "MAX_EXPRESSION",
    "NAMES",
    "BuiltinTools",
    "ask_person",
    "builtin_tools",
    "calculator",
    "convert_units",
    "current_time",
    "options_of",
]
