"""Model clients: OpenAI-compatible endpoints, the offline demo model, a local model, and the wrapper every run uses.

Nothing here knows teams, runs or HTTP; what is handed out is always an AutoGen `ChatCompletionClient`.
"""

from drsai_backend.models.params import ModelParams

__all__ = ["ModelParams"]
