"""What a judge's words become, asked of a served stand-in whose words the row decides."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from collector.errors import ConfigError
from collector.outcomes import Answer, Failure, Verdict
from tests.support.model_server import ModelServer
from tests.verifiers.grading import verifier_of

PROMPT = {"user": "[[answer: {say}]] {model_answer}"}


def judge(server: ModelServer, say: str, *, text: str = "Paris", row: dict[str, Any] | None = None, **settings: Any) -> Any:
    async def scenario() -> Verdict | Failure:
        given = {"type": "judge", "base_url": server.base_url, "model": "test-model", "prompt": PROMPT, **settings}
        async with verifier_of(given) as verifier:
            asked = {"say": say, **(row or {})}
            verifier.check_row(asked)
            return await verifier.verify(asked, Answer(response={"id": "answer-0", "output": []}, text=text))

    return uvloop.run(scenario())


@pytest.mark.parametrize(
    ("say", "settings", "reward", "verdict"),
    [
        pytest.param("It fits.\nVERDICT: correct", {}, 1.0, "correct", id="default-rule-and-labels"),
        pytest.param("No.\n\n**Verdict: Incorrect.**\n", {}, 0.0, "incorrect", id="decorated-last-line"),
        pytest.param("VERDICT: correct\nno, wait\nVERDICT: incorrect", {}, 0.0, "incorrect", id="the-last-line-counts"),
        pytest.param("C", {"labels": {"C": 1, "I": 0, "N": 0.5}}, 1.0, "C", id="a-letter"),
        pytest.param("(B)? No: (A)", {"parse": {"how": "regex", "pattern": r"\(([AB])\)"}, "labels": {"A": 1, "B": 0}},
                     1.0, "A", id="last-match-of-a-pattern"),
        pytest.param('{"verdict": "correct"}', {"parse": "json"}, 1.0, "correct", id="json"),
        pytest.param('Sure: ```json\n{"why": {"a": 1}, "grade": "No"}\n```', {"parse": {"how": "json", "key": "grade"},
                     "labels": {"yes": 1, "no": 0}}, 0.0, "no", id="json-in-a-fence"),
        pytest.param("Rating: 7", {"score_range": [1, 10]}, 2 / 3, "7", id="a-number-of-a-range"),
        pytest.param("Rating: 10/10", {"score_range": [0, 10]}, 1.0, "10/10", id="a-number-of-its-range"),
        pytest.param('{"score": 3}', {"parse": {"how": "json", "key": "score"}, "score_range": [1, 5]}, 0.5, "3", id="json-number"),
        pytest.param("Rating: .5", {"score_range": [0, 10]}, 0.05, ".5", id="a-number-that-begins-with-its-point"),
        pytest.param('{"verdict": "correct", "parts": {"a": {"verdict": "incorrect"}}}', {"parse": "json"}, 1.0, "correct",
                     id="json-with-verdicts-on-its-parts"),
        pytest.param('{"verdict": "incorrect"} no: {"verdict": "correct"} {"end": {}}', {"parse": "json"}, 1.0, "correct",
                     id="the-last-json-with-the-key"),
    ],
)  # fmt: skip
def test_a_verdict_becomes_the_reward_of_its_label(
    model_server: ModelServer, say: str, settings: dict[str, Any], reward: float, verdict: str
) -> None:
    found = judge(model_server, say, **settings)

    assert isinstance(found, Verdict), found
    assert found.reward == pytest.approx(reward)
    assert found.extra["judge"] == {"model": "test-model", "verdict": verdict, "text": say.strip()}


@pytest.mark.parametrize(
    ("say", "settings", "words"),
    [
        pytest.param("I cannot tell", {}, "said 'I cannot tell', which is none of correct, incorrect", id="no-label"),
        pytest.param("VERDICT: not correct", {}, "said 'not correct'", id="a-label-within-other-words"),
        pytest.param("***", {}, r"hold no verdict \(last_line\)", id="nothing-said"),
        pytest.param("fine", {"parse": {"how": "regex", "pattern": "V: (.*)"}}, r"hold no verdict \(regex\)", id="no-match"),
        pytest.param('{"verdict": ', {"parse": "json"}, r"hold no verdict \(json\)", id="broken-json"),
        pytest.param('["verdict"]', {"parse": "json"}, r"hold no verdict \(json\)", id="no-object"),
        pytest.param("Rating: 11", {"score_range": [1, 10]}, "no number from 1 to 10", id="outside-the-range"),
        pytest.param("Rating: 7/5", {"score_range": [1, 10]}, "no number from 1 to 10", id="of-another-range"),
        pytest.param("Rating: nan", {"score_range": [1, 10]}, "no number from 1 to 10", id="no-number"),
        pytest.param(
            "one two VERDICT: correct", {"parameters": {"max_output_tokens": 3}}, "token limit", id="cut-at-the-limit"
        ),
        pytest.param("a" * 40 + "!", {"parse": {"how": "regex", "pattern": "(a+)+$"}}, "search", id="a-search-without-end"),
    ],
)
def test_words_that_are_no_verdict_are_an_invalid_judgement_that_keeps_the_answer(
    model_server: ModelServer, say: str, settings: dict[str, Any], words: str
) -> None:
    found = judge(model_server, say, **settings)

    assert isinstance(found, Failure)
    assert (found.failure_class, found.kind, found.terminal) == ("judge_invalid", "judge_unparseable", False)
    assert found.response == {"id": "answer-0", "output": []}
    assert found.extra["judge_input_tokens"] > 0
    with pytest.raises(ValueError, match=words):
        raise ValueError(found.reason)


def test_a_verdict_of_a_cut_reply_counts_where_the_settings_say_so(model_server: ModelServer) -> None:
    found = judge(model_server, "correct and so on", parameters={"max_output_tokens": 1}, accept_truncated=True)

    assert isinstance(found, Verdict)
    assert found.reward == 1.0


@pytest.mark.parametrize("mode", ["500", "400", "401", "drop", "malformed"])
def test_a_judge_that_does_not_answer_well_is_a_failed_judgement_that_keeps_the_answer(tmp_path: Any, mode: str) -> None:
    """Whatever the status: the request is not the policy's, and a judge that is mended may be asked about the same answer."""
    with ModelServer(tmp_path, mode=mode) as server:
        found = judge(server, "correct")

    assert isinstance(found, Failure)
    assert (found.failure_class, found.kind, found.terminal) == ("judge_failed", "judge_failed", False)
    assert found.reason.startswith("the judge: ")
    assert found.response == {"id": "answer-0", "output": []}
    assert sum(server.counts().values()) == 1


def test_a_request_that_was_not_executed_is_repeated_within_its_bound(tmp_path: Any) -> None:
    with ModelServer(tmp_path, mode="503") as server:
        found = judge(server, "correct", max_tries=3, retry_deadline_s=20)

    assert isinstance(found, Failure)
    assert "after 3 tries" in found.reason
    assert sum(server.counts().values()) == 3


def test_a_judge_that_is_silent_is_given_up_in_its_time(tmp_path: Any) -> None:
    with ModelServer(tmp_path, mode="silence") as server:
        found = judge(server, "correct", timeout_s=0.5)

    assert isinstance(found, Failure)
    assert found.failure_class == "judge_failed"


def test_the_default_prompt_shows_task_expectation_and_answer(model_server: ModelServer) -> None:
    """Marks in the task reach the judge, so the task is in its prompt; without the expected answer nothing is asked."""
    params = {
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "[[answer: VERDICT: correct]]"}]
    }
    found = judge(model_server, "", prompt=None, row={"expected_answer": "Paris", "responses_create_params": params})

    assert isinstance(found, Verdict)
    assert found.reward == 1.0
    with pytest.raises(ValueError, match="prompt needs 'expected_answer'"):
        judge(model_server, "", prompt=None, row={"responses_create_params": params})


def test_braces_in_an_answer_are_text(model_server: ModelServer) -> None:
    found = judge(model_server, "VERDICT: correct", text="{say} {0} {model_answer.__class__} }{")

    assert isinstance(found, Verdict)


def test_the_key_comes_from_the_environment_and_is_nowhere_else(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret-1")
    with ModelServer(tmp_path, api_key="sk-very-secret-1") as server:
        good = judge(server, "correct", api_key_env="JUDGE_KEY")
        refused = judge(server, "correct")
        monkeypatch.setenv("JUDGE_KEY", "sk-very-wrong-22")
        wrong = judge(server, "correct", api_key_env="JUDGE_KEY")

    assert isinstance(good, Verdict)
    assert isinstance(refused, Failure)
    assert isinstance(wrong, Failure)
    assert "secret" not in repr((good, refused, wrong))
    assert "sk-very-wrong-22" not in repr(wrong)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"base_url": "http://me:pass@host/v1"}, "must not carry a user", id="credentials-in-the-url"),
        pytest.param({"base_url": "ftp://host"}, "is not an http or https URL", id="scheme"),
        pytest.param({"headers": {"X-Api-Key": "me:pass"}}, "a key does not belong into a file", id="key-in-a-header"),
        pytest.param({"labels": {"a": 1}, "score_range": [0, 1]}, "labels or score_range, not both", id="two-scales"),
        pytest.param({"labels": {}}, "labels: is empty", id="no-labels"),
        pytest.param({"labels": {"A": 1, "(a)": 0}}, r"labels: A, \(a\): read the same", id="labels-that-read-the-same"),
        pytest.param({"labels": {True: 1, False: 0}}, "put it in quotes", id="yes-of-yaml"),
        pytest.param({"labels": {"a": float("nan")}}, "labels.a", id="label-without-a-number"),
        pytest.param({"score_range": [5, 1]}, "low below high", id="range-upside-down"),
        pytest.param({"parse": {"how": "regex", "pattern": "("}}, "not a regular expression", id="pattern"),
        pytest.param({"parse": "first_line"}, "last_line", id="unknown-rule"),
        pytest.param({"parameters": {"input": "x"}}, "input cannot be set here", id="input-as-parameter"),
        pytest.param({"parameters": {"top_k": 1}}, "top_k cannot be set here", id="unknown-parameter"),
        pytest.param({"extra_body": {"stream": True}}, "may not set 'stream'", id="streaming"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_line_with_the_key(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        verifier_of({"type": "judge", "base_url": "http://h/v1", "model": "m", **settings})

    assert "me:pass" not in str(told.value)
