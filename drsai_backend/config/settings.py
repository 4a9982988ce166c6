"""Settings are `DRSAI_*` variables of the environment or of a `.env` file, and OpenAI's own two variables.

Every field below is a variable: `database_url` is `DRSAI_DATABASE_URL`. A value that cannot be used raises
`ConfigurationError` naming the variable; the value itself is never repeated, as it may be a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import ByteSize, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from drsai_backend.config.values import (
    UPPER,
    ApiKey,
    BudgetsOf,
    Continues,
    Days,
    Delays,
    Document,
    Documents,
    Endpoint,
    Folders,
    Hosts,
    Levels,
    LimitsOf,
    MessageRules,
    Names,
    Networks,
    OldSecrets,
    Origins,
    Retention,
    StrippedSecret,
    TeamNames,
    ToolTimes,
    VariableName,
)
from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import Wrong, explain, slip_of

log = logging.getLogger("drsai.settings")

_PREFIX = "DRSAI_"
_MIB = 1024 * 1024
ENVIRONMENT: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""What the name of an environment looks like."""


class _Variables(EnvSettingsSource):
    """The environment. What kind of value a field takes is looked at where there is one."""

    def prepare_field_value(self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool) -> Any:
        return None if value is None else super().prepare_field_value(field_name, field, value, value_is_complex)


class Settings(BaseSettings):
    """All settings, read once at start. Keyword arguments win over the environment, which wins over `.env`.

    Raises:
        ConfigurationError: a variable that cannot be used; the message names it.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    database_url: str = Field(
        default="sqlite:///drsai.db",
        repr=False,
        description="`sqlite:///file` or `postgresql://…`; may hold a password.",
    )
    queue_url: str | None = Field(
        default=None,
        repr=False,
        description="`postgresql://…` of the same database, for the job queue: past a PgBouncer in transaction mode.",
    )
    sqlite_synchronous: Annotated[Literal["NORMAL", "FULL"], UPPER] = Field(
        default="NORMAL", description="NORMAL survives the death of the process, FULL that of the machine."
    )
    secret_key: SecretStr | None = Field(default=None, description="Encrypts the API keys that are stored.")
    secret_key_old: OldSecrets = Field(
        default_factory=list,
        description="Earlier secret keys, which only decrypt; separated by commas, without spaces.",
    )
    encryption_keys: OldSecrets = Field(
        default_factory=list,
        description="Encrypt the texts that are stored, the newest key first; separated by commas, without spaces.",
    )
    encryption_keys_file: Path | None = Field(default=None, description="A file with such keys, a line each.")

    environment: str = Field(
        default="default",
        pattern=ENVIRONMENT,
        description="Which set of stored settings holds here, such as `test` or `prod` (`drsai config`).",
    )
    extensions: Names = Field(
        default_factory=list,
        description="Extensions of your own, as `package.module:Class`; separated by commas.",
    )

    auth: Literal["auto", "required"] = Field(
        default="auto",
        description="auto: nobody needs an API key until the first one is made; required: everybody.",
    )
    user_header: str | None = Field(
        default=None, description="The header in which a gateway with the scope `act-as` names the user."
    )

    api_key: ApiKey = Field(default=None, description="What `drsai chat --base-url` asks a server with.")

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535, description="0: any free port.")
    workers: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Processes of `drsai serve`, on one port; unset: one a core, 4 at most, on PostgreSQL, else 1.",
    )
    ssl_certfile: Path | None = Field(default=None, description="The server's certificate and its chain, in PEM.")
    ssl_keyfile: Path | None = Field(default=None, description="The certificate's private key, in PEM, unencrypted.")
    trusted_proxies: Networks = Field(
        default_factory=list,
        description="Addresses and networks of proxies whose `X-Forwarded-For` and `-Proto` are believed.",
    )
    cors_origins: Origins = Field(
        default_factory=list, description="Origins that browsers may call from, separated by commas."
    )
    allowed_hosts: Hosts = Field(
        default_factory=list, description="Hosts that requests may name, besides loopback ones; separated by commas."
    )
    max_body_bytes: ByteSize = Field(
        default=ByteSize(20 * _MIB), gt=0, description="Largest request body; `20MiB` is understood too."
    )
    max_bodies_bytes: ByteSize = Field(
        default=ByteSize(64 * _MIB), gt=0, description="Of all request bodies that are read at a time, together."
    )
    max_messages: int = Field(default=4096, ge=1, description="Most messages of a request.")
    max_connections: int = Field(default=4096, ge=1, description="Clients that may be connected at once.")
    header_seconds: float = Field(
        default=10.0, gt=0, description="How long a client may take from connecting to the end of a request's headers."
    )
    body_seconds: float = Field(default=60.0, gt=0, description="How long a request's body may take to arrive.")
    keep_alive_seconds: float = Field(
        default=75.0, ge=1, description="How long a connection stays open for another request."
    )
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], UPPER] = Field(
        default="INFO", description="From which level on lines are logged."
    )
    log_format: Literal["console", "json"] = "console"
    log_users: Literal["plain", "hashed", "none"] = Field(
        default="plain", description="How lines about runs name the user: as they are, by a digest, or not at all."
    )

    jwt_issuer: str | None = Field(default=None, description="Who makes the tokens that are accepted: their `iss`.")
    jwt_audience: str | None = Field(default=None, description="For whom: their `aud`, or one of it.")
    jwt_keys: str | None = Field(
        default=None, description="The issuer's key set (JWKS): a file, or an https URL. For RS256, ES256 and EdDSA."
    )
    jwt_secret: StrippedSecret = Field(
        default=None, description="Instead: a secret of 32 bytes or more that is shared with the issuer, for HS256."
    )
    jwt_user_claim: str = Field(default="sub", min_length=1, description="The claim that is the user's id.")
    jwt_tenant_claim: str | None = Field(
        default=None, description="The claim that is the tenant; unset: all users belong to the tenant `default`."
    )
    jwt_scopes_claim: str = Field(default="scope", min_length=1, description="The claim that names scopes or roles.")
    jwt_roles_claim: str = Field(
        default="roles", min_length=1, description="The claim with the user's roles in the application."
    )
    jwt_default_scopes: Names = Field(
        default_factory=lambda: ["user"], description="Scopes or roles of tokens that name no scope known here."
    )
    jwt_leeway_seconds: float = Field(
        default=30.0, ge=0, le=300, description="How much the issuer's clock may differ from this one."
    )

    resume_by_history: bool = Field(
        default=True,
        description="on: a request that names no thread and brings a known history continues its thread, and a thread "
        "goes back to where the history of its client ends.",
    )
    other_model: Literal["continue", "refuse"] = Field(
        default="continue",
        description="What becomes of a message to another model than its thread's: that one continues the thread with "
        "its history, or 409.",
    )

    heartbeat_seconds: float = Field(default=3.0, gt=0, description="How often the leases of a process are renewed.")
    lease_seconds: float = Field(default=10.0, gt=0, le=86_400, description="How long a lease lives without renewal.")
    max_stall_seconds: float = Field(
        default=60.0, ge=0, description="How long the leases of a process whose event loop stands still are renewed."
    )
    recovery: Literal["continue", "fail"] = Field(
        default="continue",
        description="What becomes of a run whose process died: another resumes it, or it ends as error.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="How often a process that runs nothing but one run may die in the same turn of it, before the run "
        "is given up.",
    )
    unknown_team_seconds: float = Field(
        default=900.0,
        gt=0,
        le=31_536_000,
        description="How long a message waits for a worker that knows its team, while others live that do not.",
    )
    sweep_seconds: float = Field(default=3.0, gt=0, description="How often a process looks for runs that nobody runs.")
    max_runs: int = Field(
        default=200,
        ge=1,
        description="Most runs that a process begins by itself at a time: of dead processes, the background, queues.",
    )
    job_concurrency: int = Field(
        default=10, ge=1, description="How many runs of the job queue a process begins at a time."
    )
    shutdown_grace_seconds: float = Field(
        default=20.0,
        ge=0,
        description="How long runs may take to their next turn boundary when the process is stopped.",
    )
    outage_seconds: float = Field(
        default=300.0, ge=0, description="How long a live run waits for a database that cannot be reached."
    )
    max_turns: int = Field(default=200, ge=0, description="Turns of a run, nested teams' included; 0: no bound.")
    max_run_seconds: float = Field(default=86400.0, ge=0, description="How long a run may run; 0: no bound.")
    max_run_tokens: int = Field(default=0, ge=0, description="Tokens of a run's model calls; 0: no bound.")
    on_disconnect: Literal["continue", "cancel"] = Field(
        default="continue",
        description="What becomes of a run when the client of its chat request leaves, unless the team or the request "
        "says it: it continues, or is stopped.",
    )
    on_question: Literal["wait", "answer"] = Field(
        default="wait",
        description="What a message in the queue is to a question that is asked before its turn, unless the request "
        "says it: it waits on, or is the answer.",
    )
    join_repeats: Literal["left", "always", "off"] = Field(
        default="left",
        description="Which requests join the run of an equal one that is under way: those that say they are repeated, "
        "and others once its client has left (left), or in any case (always); off: none.",
    )
    client_tools: Literal["offer", "ignore", "refuse"] = Field(
        default="offer",
        description="The tools that a client brings: the answering agent may call them; they are left aside; or a "
        "request with tools is refused. A team's own word stands in for it.",
    )
    warm_threads: int = Field(default=256, ge=0, description="Thread states kept in memory; 0 keeps none.")
    warm_bytes: ByteSize = Field(default=ByteSize(64 * _MIB), ge=0, description="Upper bound of their size in memory.")

    allowed_addresses: Networks = Field(
        default_factory=list,
        description="Networks and addresses that are not public and may be reached where somebody else names a URL.",
    )
    image_urls: Hosts = Field(
        default_factory=lambda: ["https"],
        description="Whose images and files are fetched where a message names a URL: `https`: any public server's; or "
        "hosts, separated by commas, such as example.org or *.example.org; `off`: nobody's.",
    )
    engine_modes: Names = Field(
        default_factory=lambda: ["react", "plan_execute", "reflexion", "simple", "tools"],
        description="What `POST /api/v1/agent/execute` may be asked for, separated by commas; `off`: nothing.",
    )
    engine_mode: Literal["tools", "simple", "react", "plan_execute", "reflexion"] = Field(
        default="react", description="The mode of a task that names none."
    )
    engine_steps: int = Field(default=10, ge=1, le=50, description="Steps of a task that does not say how many.")
    engine_tools: Names = Field(
        default_factory=lambda: ["calculator", "convert_units", "current_time"],
        description="Built-in tools that its agents may have, separated by commas.",
    )
    definition_packages: Names = Field(
        default_factory=list, description="Python packages and modules whose functions definitions may name as tools."
    )
    webhook_timeout_seconds: float = Field(
        default=15.0, gt=0, le=300, description="How long an attempt to deliver a webhook may take, altogether."
    )
    webhook_retry_seconds: Delays = Field(
        default_factory=lambda: [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400],
        description="How long is waited after each failed attempt; after one more, the webhook is given up.",
    )
    webhook_max_pending: int = Field(
        default=10000, ge=1, description="Webhooks of a user that have not arrived yet; a run that asks for more: 429."
    )
    webhook_keep_days: float = Field(
        default=30.0, gt=0, le=36500, description="For how long webhooks that arrived or were given up are listed."
    )

    files_folder: Path | None = Field(
        default=None, description="The folder with the content of files; unset: it is in the database."
    )
    max_file_bytes: ByteSize = Field(
        default=ByteSize(512 * _MIB), gt=0, description="Largest file of `/v1/files`; `512MiB` is understood too."
    )
    max_files_bytes: ByteSize = Field(
        default=ByteSize(10240 * _MIB), gt=0, description="Of all files of a user together."
    )
    max_file_tokens: int = Field(
        default=32_000, ge=100, description="Tokens of what agents are shown of the documents of one message."
    )
    mcp_servers: str | None = Field(
        default=None, description="A YAML or JSON file of the MCP servers that component configs may name."
    )
    mcp_connections: int = Field(default=32, ge=1, description="Connections to MCP servers that a process has open.")
    mcp_idle_seconds: float = Field(default=300.0, gt=0, description="For how long one that nobody uses stays open.")

    assistant_tools: Names = Field(
        default_factory=lambda: ["calculator", "current_time", "convert_units"],
        description="The built-in tools of the team `assistant`, separated by commas.",
    )
    search_provider: Literal["searxng", "brave", "tavily", "google"] | None = Field(
        default=None, description="Whom the built-in tool `web_search` asks."
    )
    search_url: Endpoint = Field(default=None, description="Where; SearXNG needs it, the others have a default.")
    search_key_env: VariableName = Field(
        default=None,
        description="The name of the variable with its key. Default: BRAVE_API_KEY, TAVILY_API_KEY, GOOGLE_API_KEY.",
    )
    search_engine_id: str | None = Field(default=None, description="The id (`cx`) of Google's search engine.")
    weather_url: Endpoint = Field(default=None, description="The forecast of `weather`. Default: Open-Meteo's.")
    geocoding_url: Endpoint = Field(default=None, description="Where `weather` finds places. Default: Open-Meteo's.")
    file_folders: Folders = Field(
        default_factory=list, description="Folders that `file_reader` reads from, separated by commas."
    )

    retention_days: Days | None = Field(
        default=None, gt=0, description="Threads unchanged for longer are deleted; unset: all are kept."
    )
    retention: Retention = Field(
        default_factory=dict,
        description="Days by status, or tenant and status, in place of those: `error=7, paused=90, acme/*=365`; "
        "0: kept.",
    )

    openai_api_key: ApiKey = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: Endpoint = Field(default=None, validation_alias="OPENAI_BASE_URL")
    require_model: bool = Field(default=False, description="Refuse to start with the offline demo model.")
    model: str | None = Field(default=None, description="The model's name at the endpoint. Default: gpt-4o-mini.")
    model_timeout: float = Field(
        default=300.0, gt=0, description="Seconds without a byte from the model's endpoint before a call is given up."
    )
    max_answer_bytes: ByteSize = Field(
        default=ByteSize(4 * _MIB),
        gt=0,
        description="Of a model's answer, the arguments of its calls included; a longer one ends there, as `length`.",
    )
    max_thought_bytes: ByteSize = Field(
        default=ByteSize(_MIB // 4), gt=0, description="Of what a model thinks before it; the rest is left out."
    )
    max_tool_output: int = Field(
        default=_MIB,
        ge=100,
        description="Characters of any tool's result that the model gets, whatever the tool itself allows.",
    )
    tool_timeouts: ToolTimes = Field(
        default_factory=dict,
        description="Seconds that an attempt of a tool call may take, by the tool's name: `web_search=5, *=60`; `*`: "
        "of tools that say none themselves; 0: for ever.",
    )
    model_max_retries: int = Field(default=2, ge=0, le=10, description="Repeats of a call after 408, 409, 429, 5xx.")
    model_context: int | None = Field(
        default=None, gt=0, description="Context size in tokens, for models that AutoGen does not know."
    )
    model_vision: bool | None = Field(
        default=None, description="What the model can do; unset: what AutoGen knows of it."
    )
    model_function_calling: bool | None = None
    model_json_output: bool | None = None
    model_structured_output: bool | None = None
    model_multiple_system_messages: bool | None = None
    model_family: str | None = None
    model_messages: MessageRules = Field(
        default_factory=dict,
        description="Which messages models take: one word for all, or a JSON object of words by model name (`*` fits "
        "any characters); unset: by family, and learnt from an endpoint's first refusal.",
    )
    model_continues: Continues = Field(
        default_factory=dict,
        description="How models are asked to continue an answer that a history ends with: one word for all, or a JSON "
        "object of words by model name; unset: as is known of the endpoint, and not at all elsewhere.",
    )
    housekeeping: str = Field(
        default="auto",
        description="Which requests ask about a chat and are no part of it (titles, tags): auto: the prompts of known "
        "chat windows; off: none; or a regular expression that finds more, in the last message.",
    )
    models: Path | None = Field(
        default=None, description="A YAML or JSON file of model profiles, which teams ask by their names."
    )
    profile_overrides: Document = Field(
        default_factory=dict,
        description="Model profiles that win over those of the file, in its form, as JSON: `profiles`, `default`.",
    )
    model_cache_url: SecretStr | None = Field(
        default=None, description="`redis://…`: where answers are kept that profiles cache; unset: in the database."
    )
    task_model: str | None = Field(
        default=None, description="The model at the endpoint that answers them. Default: as `DRSAI_MODEL`."
    )
    task_seconds: float = Field(default=60.0, gt=0, description="How long such an answer may take.")
    tasks_at_once: int = Field(
        default=16, ge=1, description="How many of them a process asks for at a time; a user, a quarter of it."
    )
    embeddings_model: str | None = Field(
        default=None, min_length=1, description="The model of `/v1/embeddings`; unset: there are no embeddings."
    )
    embeddings_base_url: Endpoint = Field(
        default=None, description="The endpoint of the embeddings. Default: that of the model."
    )
    embeddings_api_key: ApiKey = Field(
        default=None,
        description="Its key. Default: OPENAI_API_KEY, if the embeddings have no endpoint of their own.",
    )
    embeddings_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Numbers of the vectors of memory and knowledge; unset: as many as the model gives.",
    )
    embeddings_batch: int = Field(
        default=128, ge=1, le=2048, description="Texts that the endpoint is asked for at once, for those."
    )
    memory: bool = Field(
        default=False,
        description="Learn facts from what known people say, after each run, and have the built-in `assistant` recall "
        "them.",
    )
    memory_shared: Levels = Field(
        default_factory=dict,
        description="Teams of whose runs all users of a tenant remember something, by name: `team` for that team, "
        "`tenant` for all; `*`: what definitions of other teams may ask for.",
    )
    memory_model: str | None = Field(
        default=None, description="The profile, or the model, that learns. Default: the default model."
    )
    memory_tokens: int = Field(
        default=800, ge=50, le=100_000, description="Most tokens of memories that an agent is shown in a turn."
    )
    memory_idle_seconds: float = Field(
        default=3600.0, gt=0, description="After so long without a message, short-term memory of a thread is empty."
    )
    usage: bool = Field(default=True, description="Store what each model call has used and cost (`drsai usage`).")
    usage_days: int | None = Field(
        default=None, ge=1, le=36_500, description="Days after which they are folded into sums of days; unset: never."
    )
    calls_keep: TeamNames = Field(
        default_factory=list,
        description="Keep what models were sent and have answered in runs: `true`, or of some teams, whose names are "
        "separated by commas (`drsai runs calls`).",
    )
    calls_keep_days: int = Field(default=90, ge=1, le=36_500, description="Days after which it is deleted.")
    prices: Path | None = Field(
        default=None, description="A YAML or JSON file of what models cost. Default: the list that comes along."
    )
    price_overrides: Documents = Field(
        default_factory=list, description="Prices that win over those of the list, each as there, as JSON."
    )
    limit_address: int = Field(
        default=0, ge=0, description="Requests a minute of one address to one process, whoever asks; 0: no limit."
    )
    limit_key: LimitsOf = Field(
        default_factory=dict,
        description="What each API key may have: `requests=60, tokens=100000` a minute, `runs=4, streams=8` at once; "
        "what is not said, or 0, has no limit.",
    )
    limit_user: LimitsOf = Field(default_factory=dict, description="What each user may have, likewise.")
    limit_tenant: LimitsOf = Field(default_factory=dict, description="What each tenant may have, likewise.")
    limit_all: LimitsOf = Field(default_factory=dict, description="What all may have together, likewise.")
    limit_process_runs: int = Field(
        default=0, ge=0, description="Runs that a process has under way while it takes requests for more; 0: no limit."
    )
    metrics: bool | None = Field(
        default=None,
        description="Count what happens, for `/metrics`; unset: in `drsai serve` and `drsai worker`, and where metrics "
        "have a port.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="A port where nobody needs a key for `/metrics`; unset: there is none.",
    )
    metrics_host: str = Field(default="127.0.0.1", min_length=1, description="The address of that port.")
    metrics_folder: Path | None = Field(
        default=None,
        description="Where the processes count that answer for each other at one address; unset: `drsai serve` makes "
        "one for its own.",
    )
    traces: bool | None = Field(
        default=None, description="Send spans to a collector of OpenTelemetry; unset: where OTLP has an endpoint."
    )
    traces_content: bool = Field(
        default=False, description="Spans have the texts of messages, and arguments and results of tools."
    )
    otlp_endpoint: Endpoint = Field(
        default=None,
        validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="The collector's address for OTLP over HTTP; default: `http://localhost:4318`.",
    )
    budget_key: BudgetsOf = Field(
        default_factory=dict,
        description="What each API key may spend: `tokens_day=1000000, tokens_month=…, cost_day=…, cost_month=50`; "
        "what is not said, or 0, has no budget.",
    )
    budget_user: BudgetsOf = Field(default_factory=dict, description="What each user may spend, likewise.")
    budget_tenant: BudgetsOf = Field(default_factory=dict, description="What each tenant may spend, likewise.")
    budget_all: BudgetsOf = Field(default_factory=dict, description="What all may spend together, likewise.")
    budget_thread: BudgetsOf = Field(default_factory=dict, description="What each thread may spend, likewise.")
    budget_message: str | None = Field(
        default=None,
        description="What is told where a budget is used up; `{budget}` stands for its name, `{until}` for when it "
        "begins anew.",
    )
    demo_delay: float = Field(default=0.015, ge=0, description="Seconds between two words of the offline demo model.")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = [*explain(error)]
            param = wrong[0].place if len(wrong) == 1 else None
            raise ConfigurationError("; ".join(map(_named, wrong)), param=param) from None
        except UnicodeDecodeError:
            raise ConfigurationError(".env cannot be read: it must be text in UTF-8") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return what is read, in its order; of variables, warn of those that are a slip of the pen."""
        sources = (init_settings, _Variables(settings_cls), dotenv_settings, file_secret_settings)
        # A file that is not there takes as long as the environment: each field is looked for.
        sources = tuple(each for each in sources if not isinstance(each, EnvSettingsSource) or each.env_vars)
        for source in sources:
            _warn_of_slips(source.env_vars if isinstance(source, EnvSettingsSource) else ())
        return sources

    @property
    def is_demo(self) -> bool:
        """True when no endpoint is set, and the offline demo model answers."""
        return self.openai_api_key is None and self.openai_base_url is None

    @property
    def is_traced(self) -> bool:
        """Whether spans are wanted."""
        return self.otlp_endpoint is not None if self.traces is None else self.traces

    def logged(self, tenant: str, user_id: str) -> dict[str, str]:
        """Return fields of a line of the log: `tenant`, and `user` as DRSAI_LOG_USERS wants it. A digest is equal for
        the same user of the same tenant, and with a secret key nobody without that makes it."""
        fields = {"tenant": tenant, "user": user_id}
        if self.log_users == "none":
            del fields["user"]
        elif self.log_users == "hashed":
            key = b"" if self.secret_key is None else sha256(self.secret_key.get_secret_value().encode()).digest()
            fields["user"] = blake2b(f"{tenant}\0{user_id}".encode(), digest_size=8, key=key).hexdigest()
        return fields

    def secrets(self) -> list[str]:
        """Return what must never be shown: keys, and the database's password."""
        named = (self.openai_api_key, self.embeddings_api_key, self.secret_key, self.jwt_secret, self.api_key)
        named = (*named, self.model_cache_url)
        keys = [key.get_secret_value() for key in named if key is not None]
        keys += [key.get_secret_value() for key in (*self.secret_key_old, *self.encryption_keys)]
        for url in filter(None, (self.database_url, self.queue_url)):
            parts = urlsplit(url)
            passwords = [parts.password, *parse_qs(parts.query).get("password", ())]
            keys += [form for password in passwords if password for form in (password, unquote(password))]
        return keys

    @model_validator(mode="after")
    def _tokens_are_set_up_whole(self) -> Settings:
        if self.jwt_keys is not None and self.jwt_secret is not None:
            raise ValueError("DRSAI_JWT_KEYS and DRSAI_JWT_SECRET cannot both be set: tokens are checked in one way")
        is_set = [self.jwt_keys or self.jwt_secret, self.jwt_issuer, self.jwt_audience]
        if any(is_set) and not all(is_set):
            raise ValueError(
                "DRSAI_JWT_ISSUER, DRSAI_JWT_AUDIENCE, and DRSAI_JWT_KEYS or DRSAI_JWT_SECRET must be set together: "
                "otherwise tokens that were made for others would be accepted"
            )
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Settings:
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ValueError(
                "--ssl-certfile and --ssl-keyfile (DRSAI_SSL_CERTFILE, DRSAI_SSL_KEYFILE) must be given together"
            )
        return self

    @model_validator(mode="after")
    def _metrics_have_another_port(self) -> Settings:
        if self.metrics_port == self.port:
            raise ValueError("DRSAI_METRICS_PORT must be another one than DRSAI_PORT, which has `/metrics`, too")
        return self

    @model_validator(mode="after")
    def _lease_outlives_a_lost_heartbeat(self) -> Settings:
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                "DRSAI_LEASE_SECONDS must be at least twice DRSAI_HEARTBEAT_SECONDS, or one late heartbeat loses a run"
            )
        return self


def _warn_of_slips(variables: Iterable[str]) -> None:
    for name in (each.lower() for each in variables):
        of_ours = name.removeprefix(_PREFIX.lower())
        if name != of_ours and (meant := slip_of(of_ours, Settings.model_fields)) is not None:
            log.warning("%s is no setting; did you mean %s?", name.upper(), _PREFIX + meant.upper())


def _named(wrong: Wrong) -> str:
    """Return what is wrong as `VARIABLE: reason`, without the value."""
    if not wrong.path:
        return wrong.text
    name = str(wrong.path[0])
    field = Settings.model_fields.get(name)
    alias = field.validation_alias if field else None
    variable = alias if isinstance(alias, str) else name if name.isupper() else _PREFIX + name.upper()
    return f"{variable}: {wrong.text}"
