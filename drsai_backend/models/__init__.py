"""Model clients: OpenAI-compatible endpoints, the offline demo model, a local model, and the wrapper every run uses.

Nothing here knows teams, runs or HTTP; what is handed out is always an AutoGen `ChatCompletionClient`.
"""

from drsai_backend.models.base import ModelProvider
from drsai_backend.models.calls.facade import facade, run_client_of
from drsai_backend.models.calls.params import PARAMETERS, ModelParams
from drsai_backend.models.calls.run_client import DefaultModelClient, RunModelClient, run_model_clients
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.endpoints.answers import DETAILS, Finish, FinishReason, UsageMeter
from drsai_backend.models.endpoints.continuation import ContinueRules, ContinuingClient
from drsai_backend.models.endpoints.message_rules import MessageForm
from drsai_backend.models.factory import ModelClientFactory

__all__ = [
    "DETAILS",
    "PARAMETERS",
    "ContinueRules",
    "ContinuingClient",
    "DefaultModelClient",
    "DemoChatCompletionClient",
    "Finish",
    "FinishReason",
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
