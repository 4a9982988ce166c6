"""Model clients: OpenAI-compatible endpoints, the offline demo model, a local model, and the wrapper every run uses.

Nothing here knows teams, runs or HTTP; what is handed out is always an AutoGen `ChatCompletionClient`.
"""

from drsai_backend.models.base import ModelParams, ModelProvider
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.facade import facade, run_client_of
from drsai_backend.models.factory import ModelClientFactory
from drsai_backend.models.message_rules import MessageForm
from drsai_backend.models.run_client import DefaultModelClient, RunModelClient, UsageMeter, run_model_clients

__all__ = [
    "DefaultModelClient",
    "DemoChatCompletionClient",
    "MessageForm",
    "ModelClientFactory",
    "ModelParams",
    "ModelProvider",
    "RunModelClient",
    "UsageMeter",
    "facade",
    "run_client_of",
    "run_model_clients",
]
