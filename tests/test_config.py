"""Settings: where they come from, and how mistakes are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("DRSAI_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults() -> None:
    settings = Settings()
    assert settings.database_url == "sqlite:///drsai.db"
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.max_body_bytes == 20 * 1024 * 1024
    assert settings.warm_bytes == 64 * 1024 * 1024
    assert (settings.heartbeat_seconds, settings.lease_seconds, settings.warm_threads) == (3, 10, 256)
    assert settings.model is None
    assert settings.openai_api_key is None
    assert settings.cors_origins == []


def test_the_environment_wins_over_the_file_and_arguments_over_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("DRSAI_PORT=1\nDRSAI_HOST=file\nDRSAI_MODEL=file\nOTHER=x\nOPENAI_API_KEY=sk-file\n")
    monkeypatch.setenv("DRSAI_HOST", "environment")
    monkeypatch.setenv("DRSAI_MODEL", "environment")
    settings = Settings(model="argument")
    assert (settings.port, settings.host, settings.model) == (1, "environment", "argument")
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-file"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_PORT", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    assert Settings().port == 8000
    assert Settings().openai_base_url is None


@pytest.mark.parametrize("text", ["http://a, https://b:3", '["http://a", "https://b:3"]'])
def test_cors_origins_are_a_list(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DRSAI_CORS_ORIGINS", text)
    assert Settings().cors_origins == ["http://a", "https://b:3"]


def test_sizes_take_units_and_words_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_MAX_BODY_BYTES", "2MiB")
    monkeypatch.setenv("DRSAI_LOG_LEVEL", "debug")
    monkeypatch.setenv("DRSAI_SQLITE_SYNCHRONOUS", "full")
    settings = Settings()
    assert settings.max_body_bytes == 2 * 1024 * 1024
    assert (settings.log_level, settings.sqlite_synchronous) == ("DEBUG", "FULL")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DRSAI_PORT", "70000"),
        ("DRSAI_PORT", "planted"),
        ("DRSAI_LOG_FORMAT", "planted"),
        ("DRSAI_SQLITE_SYNCHRONOUS", "planted"),
        ("DRSAI_MODEL_VISION", "planted"),
        ("DRSAI_CORS_ORIGINS", "[planted"),
        ("DRSAI_CORS_ORIGINS", "[" * 100_000 + "planted"),
        ("DRSAI_LEASE_SECONDS", "inf"),
        ("DRSAI_LEASE_SECONDS", "1e300"),
        ("DRSAI_SWEEP_SECONDS", "inf"),
        ("DRSAI_CORS_ORIGINS", "planted"),
        ("DRSAI_MEMORY_SHARED", "planted"),
        ("DRSAI_MEMORY_SHARED", '{"planted'),
        ("DRSAI_MEMORY_SHARED", '{"writers": "planted"}'),
        ("DRSAI_CORS_ORIGINS", "https://planted/path"),
        ("DRSAI_ALLOWED_HOSTS", "https://planted"),
        ("DRSAI_MAX_BODY_BYTES", "planted"),
        ("OPENAI_BASE_URL", "planted"),
        ("OPENAI_BASE_URL", "http://user:planted@host/v1"),
        ("DRSAI_LEASE_SECONDS", "4"),
        ("DRSAI_DEMO_DELAY", "-1"),
        ("OPENAI_API_KEY", "sk-planted-ключ"),
        ("OPENAI_API_KEY", "sk-planted two"),
    ],
)
def test_a_mistake_names_the_variable_and_never_the_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        Settings()
    assert variable in caught.value.message
    assert "planted" not in caught.value.message
    assert caught.value.__cause__ is None


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DRSAI_PORT=1\n", "utf-16")
    with pytest.raises(ConfigurationError) as caught:
        Settings()
    assert caught.value.message == ".env cannot be read: it must be text in UTF-8"
    assert caught.value.__cause__ is None


def test_a_key_of_a_mounted_secret_ends_with_a_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-planted\r\n")
    key = Settings().openai_api_key
    assert key is not None
    assert key.get_secret_value() == "sk-planted"
    monkeypatch.setenv("OPENAI_API_KEY", "\n")
    assert Settings().openai_api_key is None


def test_secrets_stay_out_of_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_DATABASE_URL", "postgresql://u:planted@h/db")
    monkeypatch.setenv("DRSAI_SECRET_KEY", "planted")
    monkeypatch.setenv("OPENAI_API_KEY", "planted")
    assert "planted" not in repr(Settings())


@pytest.mark.parametrize(
    ("given", "secrets"),
    [("one", ["one"]), ("one,two", ["one", "two"]), (" one,", [" one"]), ('["a,b", "two"]', ["a,b", "two"]), ("", [])],
)
def test_old_secret_keys(monkeypatch: pytest.MonkeyPatch, given: str, secrets: list[str]) -> None:
    monkeypatch.setenv("DRSAI_SECRET_KEY_OLD", given)
    settings = Settings()
    assert [secret.get_secret_value() for secret in settings.secret_key_old] == secrets
    assert not secrets or secrets[0] not in repr(settings.secret_key_old)
    assert set(secrets) <= set(settings.secrets())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DRSAI_DATABSE_URL", "DRSAI_DATABASE_URL"),
        ("drsai_databaseurl", "DRSAI_DATABASE_URL"),
        ("DRSAI_MAX_TURN", "DRSAI_MAX_TURNS"),
        ("DRSAI_SHUTDOWN_GRACE_SECOND", "DRSAI_SHUTDOWN_GRACE_SECONDS"),
        ("DRSAI_DATABASE_URL", None),
        ("DRSAI_TOOL_SECRET_KEY", None),  # Not a setting, and of this package: `drsai tools apply --secret KEY`.
        ("DRSAI_NOTES_FOLDER", None),  # An extension's.
        ("DATABSE_URL", None),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_slip_of_the_pen_is_warned_of_with_the_right_name(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    name: str,
    meant: str | None,
    in_file: bool,
) -> None:
    if in_file:
        (tmp_path / ".env").write_text(f"{name}=sqlite:///s3cret.db\n")
    else:
        monkeypatch.setenv(name, "sqlite:///s3cret.db")
    Settings()
    told = [] if meant is None else [f"{name.upper()} is no setting; did you mean {meant}?"]
    assert [record.getMessage() for record in caplog.records] == told


def test_no_setting_is_a_slip_of_another(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"DRSAI_{name.upper()}", "")
    Settings()
    assert caplog.records == []
