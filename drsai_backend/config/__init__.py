"""The configuration has the settings, and how their values are written."""

from drsai_backend.config.settings import Settings
from drsai_backend.config.values import usable_key

__all__ = ["Settings", "usable_key"]
