"""What a summary must not be, whatever its length: reasoning, a loop, a refusal, a tool call written as text.

Each check errs on the side of letting pass: a sound summary that is refused costs calls and ends in an extract.
"""

import re
from collections import Counter

from models.errors import ContentFailure
from models.text import estimate_tokens
from tasks.prompt import AGGRESSIVE, SYSTEM_PROMPT

_REASONING = re.compile(
    r"</?(?:think|thinking|thought|reasoning|analysis|scratchpad|reflection|inner_monologue)>"
    r"|◁/?think▷|\[/?THINK\]|<\|(?:channel|start|message|end|im_start|im_end|assistant|thinking)\|>",
    re.IGNORECASE,
)
_TOOL_CALL = re.compile(
    r"</?(?:tool_call|function_call|invoke|tool_use)\b|\[TOOL_CALLS\]|<\|tool|<\|python_tag\|>|<function=|functions?\.save_snapshot"
    r"|\bsave_snapshot\s*\(|[\"']name[\"']\s*:\s*[\"'](?:save_snapshot|everything_ok)",
    re.IGNORECASE,
)

# The fences of the prompt, and its longer sentences: a model that repeats them has summarised nothing.
_FENCE = re.compile(r"</?snapshot-[0-9a-f]{6,}", re.IGNORECASE)
_INSTRUCTIONS = frozenset(
    sentence
    for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(f"{SYSTEM_PROMPT} {AGGRESSIVE}".split()))
    if len(sentence) >= 50
)

# How a refusal, or a request for the material, begins in the languages in which they are common.
_MATERIAL = r"(?:snapshots?|conversation|content|text|material)"
_REFUSAL = re.compile(
    "|".join(
        (
            r"(?:i['’]? ?a?m|we are) (?:very |really )?sorry\b",
            r"i apologi[sz]e",
            r"(?:sorry|unfortunately),? (?:but )?i\b",
            r"(?:i|we) (?:can['’]?t|cannot|can not|won['’]t|am not able to|am unable to) (?:assist|help|comply|fulfil|provide"
            r"|summari[sz]e|continue|do that|process|create)",
            r"i['’]m (?:unable|not able) to",
            r"as an ai\b",
            rf"(?:there (?:is|are)|i (?:see|have|find)) no {_MATERIAL}",
            r"(?:please|could you(?: please)?|can you(?: please)?|kindly) (?:provide|share|paste|send|supply|upload)",
            rf"(?:it (?:looks|seems|appears) (?:like|that)|i (?:don['’]?t|do not) (?:see|have|have access to)"
            rf" (?:any|the) {_MATERIAL})",
            r"es tut mir leid|(?:tut mir leid|leider) kann ich|bitte (?:stellen|geben|senden) sie",
            r"je suis désolé|désolé,|je ne peux pas|veuillez fournir",
            r"lo siento|no puedo (?:ayudar|cumplir|resumir)|por favor,? proporci",
            r"抱歉|很抱歉|对不起|我无法|请提供|申し訳|すみません|죄송|к сожалению,? я|извините",
        )
    ),
    re.IGNORECASE,
)
_REFUSAL_TOKENS = 120
"""A refusal is short; what is longer tells something."""

_WINDOW = 24
_LEAST_CHARACTERS = 200
_LEAST_NEW = 0.35
_LINE_CHARACTERS = 30
_LINE_TIMES = 5


def check_sound(summary: str, material: str) -> None:
    """Refuse a text that is no summary.

    Args:
        summary: what the model saved.
        material: what it was shown: a conversation about such tags may have them in its summary.

    Raises:
        ContentFailure: it has no words, holds reasoning, tool syntax or the prompt, repeats itself over and over, or refuses.
    """
    if not any(character.isalnum() for character in summary):
        raise ContentFailure("the summary has no words")
    if _foreign(_FENCE, summary, material) or _repeats_instructions(summary, material):
        raise ContentFailure("the summary repeats its instructions instead of summarising")
    if _foreign(_REASONING, summary, material):
        raise ContentFailure("the summary holds tags of the model's reasoning")
    if _foreign(_TOOL_CALL, summary, material):
        raise ContentFailure("the summary holds a tool call written as text")
    if is_refusal(summary):
        raise ContentFailure("the summary is a refusal, or asks for the material, instead of a summary")
    if _repeats(summary, material):
        raise ContentFailure("the summary repeats the same words over and over")


def is_refusal(text: str) -> bool:
    """Say whether a text declines to summarise, or asks for something to summarise."""
    beginning = text.strip().lstrip("\"'“*#> ")
    return _REFUSAL.match(beginning) is not None and estimate_tokens(beginning[:2000]) <= _REFUSAL_TOKENS


def is_tool_call(text: str) -> bool:
    """Say whether a text outside of any tool call is one written out."""
    return _TOOL_CALL.search(text) is not None


def _repeats_instructions(summary: str, material: str) -> bool:
    said, shown = (" ".join(text.split()) for text in (summary, material))
    return any(sentence in said and sentence not in shown for sentence in _INSTRUCTIONS)


def _foreign(pattern: re.Pattern[str], summary: str, material: str) -> bool:
    found = {match.group().lower() for match in pattern.finditer(summary)}
    return bool(found) and not found <= {match.group().lower() for match in pattern.finditer(material)}


def _repeats(summary: str, material: str) -> bool:
    text = " ".join(summary.split())
    if len(text) >= _LEAST_CHARACTERS:
        windows = len(text) - _WINDOW + 1
        if len({text[at : at + _WINDOW] for at in range(windows)}) < _LEAST_NEW * windows:
            return True
    lines = Counter(line.strip() for line in re.split(r"\n|(?<=[.!?。！？])\s*", summary))
    return any(
        times >= _LINE_TIMES and len(line) >= _LINE_CHARACTERS and material.count(line) < times
        for line, times in lines.items()
    )
