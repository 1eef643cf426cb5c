"""Grading by a model: the judge is asked at an endpoint of its own, and its words become a reward by a stated rule.

What the judge costs is counted apart from the policy: ``judge_input_tokens`` and ``judge_output_tokens`` of the row. A judge
that cannot be asked is ``judge_failed``, one whose words are no verdict ``judge_invalid``; the answer is kept with either.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from collector import jsonl
from collector.addresses import check_http
from collector.agents.chat_format import KNOWN, NUMBERS, chat_body
from collector.agents.chat_reply import answer_of
from collector.agents.endpoint import EnvReference, endpoint_at, keys_in
from collector.agents.parameters import check_numbers, extra_body_of
from collector.agents.requests import Sender, excerpt, unusable_reply
from collector.outcomes import Answer, Delivery, Failure, FailureClass, FailureKind, Stage, Verdict
from collector.prompt import load_prompt
from collector.setting_kinds import Count, Seconds
from collector.settings import CONNECTION, REPORTING, Prompt, RetrySettings, Timeouts
from collector.transport.client import HttpClient
from collector.verifiers import judge_parse
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.judge_prompt import DEFAULT_PROMPT, judge_messages
from collector.verifiers.judge_saved import INPUT_TOKENS, OUTPUT_TOKENS
from collector.verifiers.patterns import How, find, search_pool

#: Connections kept open after use; as many requests may be in flight as the run has attempts.
_MAX_IDLE: Final = 256
#: What the default prompt asks for.
_DEFAULT_LABELS: Final = {"correct": 1.0, "incorrect": 0.0}


def _checked_url(value: str) -> str:
    return check_http(value, "name the key's variable in api_key_env")


def _without_keys(headers: dict[str, EnvReference | str]) -> dict[str, EnvReference | str]:
    for problem in keys_in(headers):
        raise ValueError(problem)
    return headers


def _text_labels(value: Any) -> Any:
    if isinstance(value, dict) and any(isinstance(key, bool) for key in value):
        raise ValueError("YAML made true or false of a label such as yes or no: put it in quotes")
    return value


class JudgeSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: judge``."""

    #: Up to and including ``/v1``; ``{services.NAME.url}`` in a submit YAML.
    base_url: Annotated[str, AfterValidator(_checked_url)] = Field(json_schema_extra=CONNECTION)
    model: str = Field(min_length=1)
    #: Name of the environment variable with the key.
    api_key_env: str | None = Field(default=None, json_schema_extra=CONNECTION)
    headers: Annotated[dict[str, EnvReference | str], AfterValidator(_without_keys)] = Field(
        default_factory=dict[str, EnvReference | str], json_schema_extra=CONNECTION
    )
    #: ``user`` and, if wanted, ``system``, or a YAML file with them: fields of the row, ``{conversation}``, ``{model_answer}``.
    prompt: Prompt | None = None
    parse: judge_parse.ParseRule = Field(default_factory=judge_parse.LastLine)
    #: What the judge may say, and the reward of each.
    labels: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], BeforeValidator(_text_labels)] | None = None
    #: Instead of labels: the judge gives a number from low to high, which is scaled to 0 to 1.
    score_range: tuple[float, float] | None = None
    #: A verdict in a reply that stopped at the token limit counts; without it such a reply is no verdict.
    accept_truncated: bool = False
    #: Sampling, in the words of ``responses_create_params``.
    parameters: dict[str, Any] = Field(default_factory=lambda: {"temperature": 0.0, "max_output_tokens": 1024})
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: Merged over each request's body: a server's own parameters.
    extra_body: dict[str, Any] = Field(default_factory=dict)
    #: One request, from the moment it leaves to the last byte.
    timeout_s: Seconds = Field(default=600.0, json_schema_extra=REPORTING)
    #: Requests that provably were not executed (refused connection, 429, 503) are repeated inside the attempt.
    max_tries: Count = Field(default=5, json_schema_extra=REPORTING)
    retry_deadline_s: Seconds = Field(default=300.0, json_schema_extra=REPORTING)

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.labels is not None and self.score_range is not None:
            raise ValueError("give labels or score_range, not both")
        if self.labels is not None and not self.labels:
            raise ValueError("labels: is empty: name what the judge may say")
        if same := judge_parse.same_labels(self.labels or {}):
            raise ValueError(f"labels: {', '.join(same)}: read the same without punctuation at their ends, whatever their case")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError("score_range: write [low, high] with low below high")
        bad = sorted({"input", "instructions", "tools", "tool_choice", "model"} & self.parameters.keys())
        if bad or not self.parameters.keys() <= KNOWN:
            names = ", ".join(bad or sorted(self.parameters.keys() - KNOWN))
            raise ValueError(f"parameters: {names} cannot be set here; a server's own parameters go into extra_body")
        check_numbers(self.parameters, NUMBERS)
        extra_body_of({}, self.extra_body)
        return self


class JudgeVerifier(Verifier[JudgeSettings]):
    """Reward by the verdict of a model. One request a grading; the event loop goes on while the judge thinks."""

    Settings = JudgeSettings
    keeps_answers = True

    def __init__(self, settings: JudgeSettings) -> None:
        super().__init__(settings)
        self._prompt = load_prompt(settings.prompt) or DEFAULT_PROMPT

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._endpoint = endpoint_at(
            settings.base_url,
            url_key="verifier.base_url",
            section="verifier",
            headers=settings.headers,
            api_key_env=settings.api_key_env,
        )
        timeouts = Timeouts(request_s=settings.timeout_s, stall_s=settings.timeout_s)
        self._client = await HttpClient(timeouts, max_idle=_MAX_IDLE).__aenter__()
        retry = RetrySettings(max_tries=settings.max_tries, retry_deadline_s=settings.retry_deadline_s)
        self._sender = Sender(self._client, retry)
        self._pool = await search_pool().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.__aexit__(*exc)
        await self._client.__aexit__(*exc)

    def identity(self) -> dict[str, Any]:
        """The words of the prompt, wherever they are kept, and the labels that they ask for."""
        return {"prompt": self._prompt.model_dump(), "labels": self._labels}

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with the field that the prompt wants and the row lacks."""
        judge_messages(self._prompt, row, "")

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """The judge's verdict; its failure is ``judge_failed`` or ``judge_invalid``, with the answer."""
        params = {**self.settings.parameters, "input": judge_messages(self._prompt, row, answer.text)}
        model = self.settings.model
        body = {**chat_body(params, model, max_tokens_key=self.settings.max_tokens_key), **self.settings.extra_body}
        reply = await self._sender.post(self._endpoint.url("chat/completions"), jsonl.dumps(body), self._endpoint.headers)
        if isinstance(reply, Failure):
            return judge_failed(reply, answer)
        try:
            said = answer_of(jsonl.loads(reply.body), params, model=model, now=time.time())
        except ValueError as error:
            return judge_failed(unusable_reply(reply, str(error)), answer)
        return await self._verdict(said, answer)

    @property
    def _labels(self) -> dict[str, float] | None:
        return self.settings.labels if self.settings.labels or self.settings.score_range else _DEFAULT_LABELS

    async def _verdict(self, said: Answer, answer: Answer) -> Verdict | Failure:
        spent = _spent(said)
        if said.truncated and not self.settings.accept_truncated:
            return _invalid("the judge stopped at its token limit (parameters.max_output_tokens)", said, answer, spent)
        found = await self._find(said.text)
        if isinstance(found, Failure):
            return _invalid(found.reason, said, answer, spent)
        if found is None:
            return _invalid(f"the judge's words hold no verdict ({self.settings.parse.how})", said, answer, spent)
        judged = self._reward(found)
        if judged is None:
            return _invalid(
                f"the judge said {' '.join(found.split())[:80]!r}, which is {self._no_verdict}", said, answer, spent
            )
        label, reward = judged
        judge = {"model": said.response["model"], "verdict": label, "text": said.text}
        return Verdict(reward=reward, extra={"judge": judge, **spent})

    async def _find(self, text: str) -> str | Failure | None:
        match self.settings.parse:
            case judge_parse.LastLine():
                return judge_parse.last_line(text)
            case judge_parse.JsonRule(key=key):
                return judge_parse.json_value(text, key)
            case judge_parse.RegexRule(pattern=pattern):
                return await find(self._pool, pattern, text, How.LAST)

    def _reward(self, found: str) -> tuple[str, float] | None:
        if self.settings.score_range is not None:
            reward = judge_parse.score_reward(found, self.settings.score_range)
            return None if reward is None else (found.strip(), reward)
        return judge_parse.label_reward(found, self._labels or {})

    @property
    def _no_verdict(self) -> str:
        if self.settings.score_range is not None:
            low, high = self.settings.score_range
            return f"no number from {low:g} to {high:g}"
        return f"none of {', '.join(self._labels or {})}"


def judge_failed(failure: Failure, answer: Answer) -> Failure:
    """The failure of a judge that could not be asked: ``answer`` is kept, and a judge that is mended may be asked again."""
    return replace(
        failure,
        failure_class=FailureClass.JUDGE_FAILED,
        kind=FailureKind.JUDGE_FAILED,
        reason=f"the judge: {failure.reason}",
        # The same request may get another answer once the judge is another, and the task's answer is good.
        terminal=False,
        stage=Stage.VERIFICATION,
        response=answer.response,
    )


def _invalid(reason: str, said: Answer, answer: Answer, spent: dict[str, int]) -> Failure:
    return Failure(
        failure_class=FailureClass.JUDGE_INVALID,
        kind=FailureKind.JUDGE_UNPARSEABLE,
        reason=reason,
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
        exception_type="InvalidVerdict",
        response_body=excerpt(said.text.encode("utf-8", "replace")),
        response=answer.response,
        extra={"judge": {"model": said.response["model"], "verdict": None, "text": said.text}, **spent},
    )


def _spent(said: Answer) -> dict[str, int]:
    usage = said.response.get("usage", {})
    counts = {INPUT_TOKENS: usage.get("input_tokens"), OUTPUT_TOKENS: usage.get("output_tokens")}
    return {name: count for name, count in counts.items() if count is not None}
