"""What is no summary, and what is one though it looks like none."""

import json
import time

import pytest

from models import ContentFailure, SummaryNode
from tasks import ModelAnswer, ToolCall
from tasks.answers import accept
from tasks.prompt import AGGRESSIVE, RULES, SYSTEM_PROMPT
from tasks.soundness import check_sound, is_refusal, is_tool_call

REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I am very sorry. I cannot summarize this.",
    "Sorry, I can't assist with that request.",
    "I cannot create a summary without the snapshots.",
    "As an AI language model, I do not have memories.",
    "Please provide the conversation you would like me to summarize.",
    "Could you please share the snapshots?",
    "It looks like you haven't included any content.",
    "There are no snapshots to fold.",
    "> I apologize, but this content violates the policy.",
    "Es tut mir leid, dabei kann ich nicht helfen.",
    "Je ne peux pas vous aider.",
    "I must decline to summarise this.",
    "Summary: I'm sorry, I can't help with that.",
    "No snapshots were provided.",
    "The snapshots are empty.",
    "I'm afraid I can't do that.",
    "I can't produce a summary.",
    "I'm just an AI model and cannot do this.",
    "I will not summarise this.",
    "Unable to process the request.",
    "Sorry, this content violates our policy.",
    "Mi dispiace, non posso aiutare.",
    "\u6211\u4e0d\u80fd\u603b\u7ed3\u3002",
    "\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u5e2e\u52a9\u3002",
)

SUMMARIES = (
    "Sorry was what Bob said first; Ada accepted it, and both went on with the plan for May.",
    "I cannot sleep, Ada wrote on 3 May; Bob suggested tea.",
    "Please call Bob before Friday. Ada asked for it twice.",
    "As an engineer Ada wants figures.",
    "They are sorry for the delay of the launch, and moved it to June.",
    "Could the launch move to June? Ada asked, and Bob agreed.",
    "As an AI engineer, Ada owns the rollout; Bob owns the database.",
    "It seems that Ada prefers Postgres; Bob was for MySQL.",
    "It looks like Bob will own the release of May.",
    "Unfortunately I lost the keys of the staging server on 3 May; Bob has the others.",
    "There is no content team any more: Ada writes the texts herself.",
    "I will write to Bob on Friday, Ada promised.",
)


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_is_told(text: str) -> None:
    assert is_refusal(text)
    with pytest.raises(ContentFailure, match="a refusal, or asks for the material"):
        check_sound(text, "They talked about the plan.")


@pytest.mark.parametrize("text", SUMMARIES)
def test_a_summary_that_begins_alike_is_none(text: str) -> None:
    assert not is_refusal(text)
    check_sound(text, "They talked about the plan.")


def test_a_long_text_is_no_refusal_however_it_begins() -> None:
    assert not is_refusal(
        "I'm sorry, Ada said. " + "Then they went on with the plan for the move of the database. " * 20
    )


@pytest.mark.parametrize(
    "tag",
    [
        "<think>",
        "</think>",
        "<think >",
        '<think type="x">',
        "<seed:think>",
        "<|eot_id|>",
        "<end_of_turn>",
        "[INST]",
        "<\uff5cAssistant\uff5c>",
        "<Thinking>",
        "<reasoning>",
        "\u25c1think\u25b7",
        "[THINK]",
        "<|channel|>",
        "<|im_end|>",
    ],
)
def test_reasoning_is_told_unless_the_conversation_is_about_it(tag: str) -> None:
    text = f"{tag}The user wants a summary. They chose Postgres."
    with pytest.raises(ContentFailure, match="tags of the model's reasoning"):
        check_sound(text, "They chose Postgres.")
    check_sound(text, f"Ada's parser fails on {tag}.")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "save_snapshot"}</tool_call>',
        '{"name": "save_snapshot", "arguments": {"text": "x"}}',
        'save_snapshot(text="They chose Postgres.")',
        "functions.save_snapshot",
        "[TOOL_CALLS] save_snapshot",
        "<function=save_snapshot>x</function>",
        "<|python_tag|>save_snapshot",
    ],
)
def test_a_tool_call_in_the_text_is_told(text: str) -> None:
    assert is_tool_call(text)
    with pytest.raises(ContentFailure, match="a tool call written as text"):
        check_sound(text, "They chose Postgres.")


LOOPS = {
    "one sentence": "They met again and talked about the very same plan. " * 12,
    "one word": "again " * 80,
    "two sentences in turn": "They met on Monday morning. Nothing came of it at all. " * 10,
    "lines": "\n".join(f"- They chose Postgres for its partial indexes.\n- point {n}" for n in range(5)),
    "without spaces": "\u4ed6\u4eec\u51b3\u5b9a\u4e86\u3002" * 60,
    "the end alone": "Ada chose Postgres over MySQL for its indexes. " + "And so on and so forth, as before. " * 20,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_is_told(text: str) -> None:
    with pytest.raises(ContentFailure, match="repeats the same words"):
        check_sound(text, "They chose Postgres.")


def test_lists_tables_and_what_the_material_repeats_are_no_loops() -> None:
    check_sound(
        "\n".join(f"- On {day} May Ada restored backup number {day} in {day * 3} minutes." for day in range(1, 30)), ""
    )
    check_sound("| day | rows |\n| --- | ---: |\n" + "\n".join(f"| {n} May | {n * 917} |" for n in range(1, 25)), "")
    chorus = "The same line of a song that they all know by heart."
    check_sound(
        "\n".join([chorus] * 6 + [f"{n}: a line of its own, the {n * 31}th" for n in range(40)]),
        "\n".join([chorus] * 9),
    )


@pytest.mark.parametrize(
    "text",
    [
        "Done.",
        "N/A",
        "null",
        "**Summary**",
        "Summary saved.",
        "... --- ???",
        "\U0001f600\U0001f680",
        "***\n\n---",
        "- \n- \n-",
    ],
)
def test_what_has_no_words_is_no_summary(text: str) -> None:
    with pytest.raises(ContentFailure, match="has no words that tell anything"):
        check_sound(text, "They talked about the plan.")


def test_the_prompt_is_no_summary_unless_the_conversation_is_about_it() -> None:
    sentence = (
        "The agent cannot carry its whole past: what you write is what it will remember, for weeks, after the snapshots"
    )
    assert sentence in SYSTEM_PROMPT
    fence = '<snapshot-677ebc9eac0e number="1" messages="1 to 10">\nThey chose Postgres.\n</snapshot-677ebc9eac0e>'
    for echo in (SYSTEM_PROMPT[:400], RULES, f"Here is it: {fence}", AGGRESSIVE, " ".join(SYSTEM_PROMPT.split()[:120])):
        with pytest.raises(ContentFailure, match="repeats its instructions"):
            check_sound(echo, "They chose Postgres.")
        check_sound(echo, f"Ada pasted the prompt of the memory worker: {echo}")
    check_sound("Keep decisions, each with its reason; the agent cannot carry its whole past.", "They talked.")


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "model_length", "content_filter", "SAFETY", "error"])
def test_an_answer_that_was_ended_is_not_accepted_in_whatever_word_it_is_said(reason: str) -> None:
    call = ToolCall("save_snapshot", '{"text": "They chose Postgres."}', "c1")
    batch = [
        SummaryNode(
            session_id="s", level=1, span_start=1, span_end=2, content="They chose Postgres. " * 40, token_count=200
        )
    ]
    assert accept(ModelAnswer((call,), "tool_calls"), batch, 2048)
    with pytest.raises(ContentFailure, match="finish_reason"):
        accept(ModelAnswer((call,), reason), batch, 2048)


def test_a_text_of_megabytes_is_refused_before_anything_is_sought_in_it() -> None:
    call = ToolCall("save_snapshot", json.dumps({"text": "-eyJ" * 1_000_000}), "c1")
    began = time.monotonic()
    with pytest.raises(ContentFailure, match="at most 32768 are stored"):
        accept(ModelAnswer((call,), "tool_calls"), [], 2048)
    assert time.monotonic() - began < 2
