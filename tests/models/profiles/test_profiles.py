"""Files of profiles: what they may say, and which model a name and a request mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core import Image
from autogen_core.models import UserMessage
from PIL import Image as Picture
from pydantic import SecretStr

from drsai_backend.errors import ConfigurationError
from drsai_backend.models import DemoChatCompletionClient, ProfileClient
from drsai_backend.models.openai import PooledOpenAIClient
from drsai_backend.models.profiles.load import keys_of, load_profiles, profiles_of
from tests.models.profiles.conftest import MakeModels
from tests.support.model_server import ModelServer

Name = Callable[[str], str]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": ({"model": "m", "temprature": 1}, "profiles.a.temprature: there is no such field"),
    "a key in the file": ({"model": "m", "api_key": "sk"}, "profiles.a.api_key: .*`key_env`"),
    "no model": ({}, "profiles.a.model: is missing"),
    "unknown provider": ({"provider": "x", "model": "m"}, "profiles.a.provider: "),
    "azure's address": ({"provider": "azure", "model": "m"}, "profiles.a.endpoint: is missing"),
    "a password": ({"model": "m", "endpoint": "http://u:p@h/v1"}, "profiles.a.endpoint: "),
    "a limit": ({"model": "m", "limits": {"rpm": 0}}, "profiles.a.limits.rpm: "),
    "fallback": ({"model": "m", "fallback": ["b"]}, r"profiles.a.fallback.0: 'b' is no profile"),
    "itself": ({"model": "m", "fallback": ["a"]}, r"profiles.a.fallback.0: 'a' is the profile itself"),
    "a rule for nothing": ({"model": "m", "routes": [{"use": "a"}]}, r"profiles.a.routes.0: must say which"),
    "cost without price": ({"model": "m", "routes": [{"use": "a", "cost_over": 1}]}, "profiles.a.price: is missing"),
    "the client's own": ({"model": "m", "parameters": {"stream": True}}, "profiles.a.parameters: stream is no"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    profile, text = WRONG[case]
    with pytest.raises(ConfigurationError, match=text) as got:
        profiles_of({"profiles": {"a": profile}})
    assert "sk" not in str(got.value).replace("asked", "")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml cannot be read: No such file"):
        load_profiles(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("profiles:\n  a: [\n")
    with pytest.raises(ConfigurationError, match=r"bad\.yaml is no YAML \(line 3\)"):
        load_profiles(tmp_path / "bad.yaml")
    (tmp_path / "good.yaml").write_text("default: a\nprofiles:\n  a: {provider: demo}\n")
    assert load_profiles(tmp_path / "good.yaml").default == "a"


async def test_a_name_means_a_profile_and_another_a_model(server: ModelServer, models: MakeModels, name: Name) -> None:
    factory = models(default="demo", demo={"provider": "demo"}, big={"model": name("big")})
    assert isinstance(factory.create("big"), ProfileClient)
    plain = factory.create("gpt-4o")
    assert isinstance(plain, PooledOpenAIClient)
    assert (await factory.create().create([UserMessage(content="Hi", source="user")])).content.startswith("[offline")  # type: ignore[union-attr]
    assert factory.describe() == "profile demo (demo)"
    assert not isinstance(factory.create("demo"), DemoChatCompletionClient)


async def test_keys_reach_their_own_endpoint_only(
    server: ModelServer, models: MakeModels, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", " theirs \n")
    server.script(None, lambda _: "ok")
    own = {"model": name("own"), "key_env": "MY_KEY", "endpoint": server.base_url}
    assert keys_of(profiles_of({"profiles": {"own": own}})) == ["theirs"]
    factory = models(own=own, settings={"model": name("m")}, other={"model": name("o"), "endpoint": server.base_url})
    asked = [UserMessage(content="Hi", source="user")]
    for profile in ("own", "settings", "other"):
        await factory.create(profile, SecretStr("of-the-request")).create(asked)
    assert [request.api_key for request in server.requests] == ["theirs", "of-the-request", "none"]
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigurationError, match=r"profiles\.own\.key_env: the variable MY_KEY is not set"):
        models(own=own)


@pytest.mark.parametrize(
    ("content", "tools", "chosen"),
    [
        ("Hello", False, "main"),
        ("word " * 400, False, "long"),
        ("你好,请用中文回答我的问题。", False, "chinese"),
        ("Add", True, "caller"),
        (["What is it?", Image(Picture.new("RGB", (2, 2)))], False, "sees"),
    ],
)
async def test_rules_send_requests_to_other_models(
    server: ModelServer, models: MakeModels, content: Any, tools: bool, chosen: str
) -> None:
    names = ("main", "long", "chinese", "caller", "sees")
    routes = [
        {"use": "sees", "images": True},
        {"use": "long", "cost_over": 0.0001},
        {"use": "chinese", "language": "zh"},
        {"use": "caller", "tools": True},
    ]
    named: dict[str, Any] = {each: {"model": f"route-{each}"} for each in names}
    named["main"] |= {"routes": routes, "price": {"prompt": 1.0}, "can": {"tools": False}}
    named["sees"] |= {"can": {"vision": True}}
    for each in names:
        server.script(f"route-{each}", lambda _: "ok")
    client = models(**named).create("main")
    assert client.model_info["vision"]
    assert client.model_info["function_calling"]
    schema: Any = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}
    result = await client.create([UserMessage(content=content, source="user")], tools=[schema] if tools else [])
    assert result.profile == chosen  # type: ignore[attr-defined]
    assert server.requests[-1].model == f"route-{chosen}"


async def test_a_request_that_is_too_long_or_too_much_skips_models(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    server.script(big := name("big"), lambda _: "ok")
    small = {"model": name("small"), "limits": {"context": 50}, "fallback": ["blind", "big"]}
    factory = models(small=small, blind={"model": name("b")}, big={"model": big, "can": {"vision": True}})
    picture = Image(Picture.new("RGB", (2, 2)))
    result = await factory.create("small").create([UserMessage(content=["word " * 99, picture], source="user")])
    assert result.profile == "big"  # type: ignore[attr-defined]
    assert len(server.requests) == 1
