"""What a user can say of one benchmark: the model that `gym eval run` and the `run` section of a submit YAML share.

Names are those of NeMo Gym where it has the key. Unknown keys are refused. Fields marked ``REPORTING`` or ``CONNECTION``
do not belong to the experiment's identity: changing them never makes saved work foreign.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.config import JsonDict

from collector.addresses import check_secretless
from collector.errors import ConfigError
from collector.sampling import range_problem
from collector.setting_kinds import Count, Repeats, Seconds, refuse_bool

M = TypeVar("M", bound=BaseModel)

#: Field metadata: where or how fast, not what is measured.
CONNECTION: Final[JsonDict] = {"identity": False}
#: Field metadata: how results are reported or when work is done, not what is measured.
REPORTING: Final[JsonDict] = {"identity": False}


class StrictModel(BaseModel):
    """Frozen, and a key that is not a field is an error."""

    # Built when first used: a command uses few of the models it imports, and all of them together take a tenth of a second.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=False, defer_build=True
    )


def identity_of(model: BaseModel) -> dict[str, Any]:
    """The fields of ``model`` that belong to the experiment, as JSON values; nested models likewise."""
    kept: dict[str, Any] = {}
    for name, info in type(model).model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and extra.get("identity") is False:
            continue
        value = getattr(model, name)
        kept[name] = identity_of(value) if isinstance(value, BaseModel) else _plain(value)
    return kept


def validate_settings(model: type[M], values: dict[str, Any], key: str) -> M:
    """``values`` as ``model``. Raises ConfigError that names every problem under ``key``."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        told = [(".".join([key, *map(str, e["loc"])]), _words_for(e["type"], e["msg"])) for e in error.errors()]
        problems = "; ".join(f"{place}: {said}" for place, said in told)
        raise ConfigError(f"{problems}.", f"Keys of {key}: {', '.join(model.model_fields)}.") from error


def _words_for(kind: str, message: str) -> str:
    """A problem in words for people; what our own checks say, without pydantic's words in front."""
    known = {"missing": "is missing", "extra_forbidden": "unknown key"}
    return known.get(kind) or message.removeprefix("Value error, ")


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value


def _named_plugin(value: Any) -> Any:
    given: Any = {"type": value} if isinstance(value, str) else value
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str):
        return given
    # A flag gives the type alone, with what overrides add beside it.
    name, _, function = kind.partition(":")
    return {**given, "type": name, "function": function} if name == "python" and function else given


def _without_secrets(value: str) -> str:
    check_secretless(value, "give the key as policy_api_key or agent.api_key_env")
    return value


#: A plug-in and its settings; its name alone stands for its defaults, and ``python:module:function``, as its type too, for
#: that function.
PlugIn = Annotated[dict[str, Any], BeforeValidator(_named_plugin)]


def _refuse_empty(value: Any) -> Any:
    if value == "":
        # pathlib makes the current directory of it.
        raise ValueError("must not be empty")
    if isinstance(value, str) and (value == "~" or value.startswith("~/")):
        # Only shells know it, and no shell reads a file or a key=value: a directory called ~ would be made.
        raise ValueError("begins with ~, which only a shell expands: write ${oc.env:HOME} in its place")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not hold a NUL character, which no path can")
    return value


def _in_range(parameters: dict[str, Any]) -> dict[str, Any]:
    problems = [f"{key} {problem}" for key, value in parameters.items() if (problem := range_problem(key, value)) is not None]
    if problems:
        raise ValueError("; ".join(problems))
    return parameters


#: A path that somebody named.
NamedPath = Annotated[Path, BeforeValidator(_refuse_empty)]
#: Parameters of a request.
Parameters = Annotated[dict[str, Any], AfterValidator(_in_range)]


class PromptConfig(StrictModel):
    """Builds ``responses_create_params.input`` from the plain fields of a row, by ``str.format`` substitution."""

    user: str
    system: str | None = None


def _kind_of_prompt(value: Any) -> str:
    return "template" if isinstance(value, dict | PromptConfig) else "file"


#: A template, or the path of a YAML file that holds one. Told apart by its form, so that an error is about that form alone.
Prompt = Annotated[Annotated[PromptConfig, Tag("template")] | Annotated[Path, Tag("file")], Discriminator(_kind_of_prompt)]


class Timeouts(StrictModel):
    """Every wait has an end. Nothing here can be null: null would mean for ever."""

    connect_s: Seconds = 10.0
    #: The whole request, from the moment it leaves to the last byte.
    request_s: Seconds = 600.0
    #: Longest time without a single byte once the request has left.
    stall_s: Seconds = 300.0
    #: A whole attempt: every request of the agent, the pauses between them, and grading.
    attempt_s: Seconds = 7200.0


class RetrySettings(StrictModel):
    """How often a rollout may be tried, and how often a request inside one attempt."""

    max_attempts: Count = Field(default=3, description="dispatched attempts of a rollout over the life of the run")
    max_interruptions: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="attempts cut short that do not count against max_attempts; null: they share it"
    )
    retry_terminal_timeouts: bool = Field(
        default=False, description="failures of classes that a later run can cure count as retryable though stamped terminal"
    )
    retry_invalid_judge_responses: bool = Field(
        default=False,
        description="results flagged invalid_judge_response become failures when a session begins, and are retried",
    )
    #: Requests that provably were not executed (refused connection, 429, 503) are repeated inside the attempt.
    max_tries: Count = 5
    backoff_s: Seconds = 1.0
    backoff_max_s: Seconds = 30.0
    #: No further try of a request begins after this many seconds of one attempt.
    retry_deadline_s: Seconds = 300.0


class RunSettings(StrictModel):
    """One benchmark, from its dataset to its verifier, and how to collect it."""

    input_jsonl_fpath: NamedPath
    output_jsonl_fpath: NamedPath = Field(json_schema_extra=REPORTING)
    prompt_config: Prompt | None = None
    responses_create_params: Parameters = Field(default_factory=dict, description="merged over each row's, one level")
    limit: Count | None = None
    num_repeats: Repeats = Field(
        default=1, description="rollouts of each task; a map gives each agent of NeMo Gym its own number"
    )
    interleave_repeats: bool = Field(
        default=False, json_schema_extra=REPORTING, description="start every task's first repeat before any second one"
    )
    num_repeats_add_seed: bool = False

    policy_model_name: str | None = None
    policy_base_url: Annotated[str, AfterValidator(_without_secrets)] | None = Field(default=None, json_schema_extra=CONNECTION)
    policy_api_key: SecretStr | None = Field(default=None, json_schema_extra=CONNECTION)

    agent: PlugIn = Field(default_factory=lambda: {"type": "openai_chat"}, description="`type` and its settings")
    verifier: PlugIn = Field(description="`type` and its settings, or a name, or `python:module:function`")

    num_samples_in_parallel: Count = Field(default=16, json_schema_extra=REPORTING, description="requests in flight at once")
    timeouts: Timeouts = Field(default_factory=Timeouts, json_schema_extra=REPORTING)
    retry: RetrySettings = Field(default_factory=RetrySettings, json_schema_extra=REPORTING)
    dispatch_budget_s: Annotated[float, BeforeValidator(refuse_bool), Field(ge=0)] | None = Field(
        default=None, json_schema_extra=REPORTING, description="seconds after which nothing new is sent; 0 sends nothing"
    )
    drain_margin_s: Annotated[float, BeforeValidator(refuse_bool), Field(ge=0)] | None = Field(
        default=None, json_schema_extra=REPORTING, description="stop when less is left; null: learned from this session"
    )
    dispatch_longest_first: bool = Field(default=False, json_schema_extra=REPORTING)
    durability: Literal["fsync", "flush"] = Field(default="fsync", json_schema_extra=REPORTING)
    resume_from_cache: bool = Field(default=True, json_schema_extra=REPORTING)
    allow_unsafe_resume: bool = Field(default=False, json_schema_extra=REPORTING)
    disable_health_check: bool = Field(
        default=False, json_schema_extra=REPORTING, description="leave out the health check after collection"
    )
    health_check_ignored_checks: tuple[str, ...] = Field(
        default=(), json_schema_extra=REPORTING, description="checks that the health check leaves out"
    )

    @model_validator(mode="before")
    @classmethod
    def _graded_by_its_agent(cls, data: Any) -> Any:
        agent = _named_plugin(data.get("agent")) if isinstance(data, dict) else None
        if isinstance(agent, dict) and agent.get("type") == "nemo_gym" and data.get("verifier") is None:
            # The servers grade what they run, so there is nothing to choose.
            return {**data, "verifier": {"type": "environment"}}
        return data

    @model_validator(mode="after")
    def _typed_plugins(self) -> Self:
        for name in ("agent", "verifier"):
            if not isinstance(getattr(self, name).get("type"), str):
                raise ValueError(f"{name}.type is missing: name one")  # noqa: TRY004 - pydantic turns ValueError into its own
        return self
