"""The offline demo model: shows what the system does without a key, a network or a download.

`client` is the AutoGen client; `rules` say what it answers, `tools` which tools it calls and how schemas are filled.
"""

from drsai_backend.models.demo.client import DemoChatCompletionClient

__all__ = ["DemoChatCompletionClient"]
