"""Model clients are here: those of OpenAI-compatible endpoints, the offline demo model and a local model, with the
wrapper that every run uses.

Nothing here knows teams, runs or HTTP; what is handed out is always an AutoGen `ChatCompletionClient`.
"""

from drsai_backend.models.answer import ModelAnswer
from drsai_backend.models.base import ModelProvider
from drsai_backend.models.calls.default_client import DefaultModelClient, run_model_clients
from drsai_backend.models.calls.facade import facade, run_client_of
from drsai_backend.models.calls.params import PARAMETERS, ModelParams
from drsai_backend.models.calls.run_client import RunModelClient
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.endpoints.answers import DETAILS, CallRecord, Finish, FinishReason, UsageMeter
from drsai_backend.models.endpoints.continuation import ContinueRules, ContinuingClient
from drsai_backend.models.endpoints.message_rules import MessageForm
from drsai_backend.models.factory import ModelClientFactory
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.client import ProfileClient

__all__ = [
    "DETAILS",
    "PARAMETERS",
    "Asker",
    "CallRecord",
    "ContinueRules",
    "ContinuingClient",
    "DefaultModelClient",
    "DemoChatCompletionClient",
    "Finish",
    "FinishReason",
    "MessageForm",
    "ModelAnswer",
    "ModelClientFactory",
    "ModelParams",
    "ModelProvider",
    "ProfileClient",
    "RunModelClient",
    "UsageMeter",
    "facade",
    "run_client_of",
    "run_model_clients",
]
