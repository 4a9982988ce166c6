"""An HTTP tool is an endpoint that a config describes, or an operation of an OpenAPI document."""

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.tools.http.config import HttpEndpoint, HttpToolConfig
    from drsai_backend.tools.http.openapi import openapi_tools
    from drsai_backend.tools.http.tool import HttpTool, environment_secrets
else:
    __getattr__ = lazily(
        __name__,
        {
            "config": "HttpEndpoint HttpToolConfig",
            "openapi": "openapi_tools",
            "tool": "HttpTool environment_secrets",
        },
    )

__all__ = ["HttpEndpoint", "HttpTool", "HttpToolConfig", "environment_secrets", "openapi_tools"]
