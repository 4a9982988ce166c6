"""Agents and teams as data: a schema, files of it, and the factories that it stands for."""

from drsai_backend.definitions.build import DefinedTeam, Means, factories
from drsai_backend.definitions.files import load, read_definitions
from drsai_backend.definitions.schema import AgentDefinition, Definitions, json_schema
from drsai_backend.definitions.source import DefinitionError, Problem

__all__ = [
    "AgentDefinition",
    "DefinedTeam",
    "DefinitionError",
    "Definitions",
    "Means",
    "Problem",
    "factories",
    "json_schema",
    "load",
    "read_definitions",
]
