"""Every parameter of the openai package is accounted for: in code, in the request's model, and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from openai.types.chat import completion_create_params

from drsai_backend.api.openai.chat.inputs import ChatBody
from drsai_backend.api.openai.chat.parameters import FATES, ParameterFields
from drsai_backend.models import PARAMETERS

DOCS = Path(__file__).parents[2] / "docs" / "http.md"
IN_PACKAGE = {
    *completion_create_params.CompletionCreateParamsBase.__annotations__,
    *completion_create_params.CompletionCreateParamsStreaming.__annotations__,
}


def test_every_parameter_of_the_package_has_a_fate() -> None:
    """Where this fails after an update of openai, a parameter is new: decide what becomes of it."""
    assert FATES.keys() == IN_PACKAGE


def test_every_parameter_is_a_field_that_is_checked() -> None:
    assert ChatBody.model_fields.keys() >= FATES.keys()
    assert {name for name, fate in FATES.items() if fate == "model"} == {*PARAMETERS, "max_completion_tokens"}
    assert ParameterFields.model_fields.keys() <= FATES.keys()


def test_the_documentation_says_the_same() -> None:
    _, _, section = DOCS.read_text().partition("### Parameters")
    table = re.findall(r"^\| (`.*?) \| (\w+)", section.partition("\n#")[0], re.MULTILINE)
    told = {name: fate for names, fate in table for name in re.findall(r"`(\w+)`", names)}
    assert told == FATES
