"""Agents and teams that are defined over the API: checked, kept with versions, and served by every worker."""

from drsai_backend.definitions.stored.document import checked
from drsai_backend.definitions.stored.store import DefinitionSpec, StoredDefinitions, Visibility

__all__ = ["DefinitionSpec", "StoredDefinitions", "Visibility", "checked"]
