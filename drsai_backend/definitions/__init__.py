"""Definitions are agents and teams as data: a schema, files of it, and the factories that it stands for."""

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.definitions.build import DefinedTeam, factories
    from drsai_backend.definitions.files import load, load_all, read_definitions
    from drsai_backend.definitions.policy import DefinitionPolicy, Means
    from drsai_backend.definitions.schema import AgentDefinition, Definitions, json_schema
    from drsai_backend.definitions.source import DefinitionError, Problem
else:
    __getattr__ = lazily(
        __name__,
        {
            "build": "DefinedTeam factories",
            "files": "load load_all read_definitions",
            "policy": "DefinitionPolicy Means",
            "schema": "AgentDefinition Definitions json_schema",
            "source": "DefinitionError Problem",
        },
    )

__all__ = [
    "AgentDefinition",
    "DefinedTeam",
    "DefinitionError",
    "DefinitionPolicy",
    "Definitions",
    "Means",
    "Problem",
    "factories",
    "json_schema",
    "load",
    "load_all",
    "read_definitions",
]
