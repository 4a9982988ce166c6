"""The demo model shows what the system does without a key, a network or a download.

`client` is the AutoGen client and what it says; `tools`, which tools it calls and how it fills schemas.
"""

from drsai_backend.models.demo.client import DemoChatCompletionClient

__all__ = ["DemoChatCompletionClient"]
