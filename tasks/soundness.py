"""What a summary must not be, whatever its length: reasoning, a loop, a refusal, a tool call written as text.

Each check errs on the side of letting pass: a sound summary that is refused costs calls and ends in an extract.
"""

import re
from collections import Counter

from models.errors import ContentFailure
from models.text import estimate_tokens
from tasks.prompt import AGGRESSIVE, SYSTEM_PROMPT

_REASONING = re.compile(
    r"</?(?:seed:)?(?:think|thinking|thought|reasoning|reasoning_content|analysis|scratchpad|reflection|inner_monologue)"
    r"(?:\s[^<>]{0,100})?>"
    r"|◁/?think▷|\[/?THINK\]|\[/?INST\]|<(?:start|end)_of_turn>|</s>\s*\Z|<\|\w{2,40}\|>|<[|｜][^<>|｜]{1,40}[|｜]>",
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
_VERBS = r"(?:assist|help|comply|fulfil|provide|summari[sz]e|continue|do th(?:at|is)|process|create|produce|generate)\b"
_REFUSAL = re.compile(
    "|".join(
        (
            r"(?:i['’]? ?a?m|we are) (?:very |really )?sorry\b",
            r"i apologi[sz]e",
            r"(?:sorry|unfortunately),? (?:but )?i (?:can|could|am\b|do not|don['’]?t|have no|was unable|won['’]?t|will not)",
            r"sorry, (?:this|the|your) (?:content|request)\b",
            rf"(?:i|we) (?:can['’]?t|cannot|can not|won['’]?t|will not|am not able to|am unable to|must decline to) {_VERBS}",
            rf"i['’]m (?:unable|not able) to|(?:i am )?unable to {_VERBS}",
            r"i['’]m afraid i (?:can|could)",
            r"(?:i['’]m just |as )an ai(?: language)?(?: model| assistant)?(?:,| and\b)",
            rf"(?:there (?:is|are)|i (?:see|have|find)) no {_MATERIAL}"
            r"(?: (?:to|in|here|provided|available|given)\b|[.,;!]|\s*\Z)",
            rf"no {_MATERIAL} (?:was|were|is|are) (?:provided|given|included|found)|the {_MATERIAL} (?:is|are) empty",
            r"(?:please|could you(?: please)?|can you(?: please)?|kindly) (?:provide|share|paste|send|supply|upload)",
            rf"it (?:looks|seems|appears) (?:like|that) (?:you|there (?:is|are) no|(?:no|the|your) {_MATERIAL})\b",
            rf"i (?:don['’]?t|do not) (?:see|have|have access to) (?:any|the) {_MATERIAL}",
            r"es tut mir leid|(?:tut mir leid|leider) kann ich|bitte (?:stellen|geben|senden) sie",
            r"je suis désolé|désolé,|je ne peux pas|veuillez fournir",
            r"lo siento|no puedo (?:ayudar|cumplir|resumir)|por favor,? proporci",
            r"mi dispiace|non posso (?:aiutare|riassumere)|desculpe|não posso (?:ajudar|resumir)",
            r"抱歉|很抱歉|对不起|我无法|我不能(?:总结|协助|帮助)|请提供|申し訳|すみません|죄송|к сожалению,? я|извините",
        )
    ),
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"(?:n/?a|null|none|nil|done|ok(?:ay)?|yes|saved|summary(?: saved| completed?)?|todo|tbd"
    r"|(?:no|nothing to) summar(?:y|i[sz]e))[.!]*",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:summary|answer)\W{1,4}", re.IGNORECASE)
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
    if not any(character.isalnum() for character in summary) or _NOTHING.fullmatch(summary.strip("\"'*#`> \n")):
        raise ContentFailure("the summary has no words that tell anything")
    if _foreign(_FENCE, summary, material) or _repeats_instructions(summary, material):
        raise ContentFailure("the summary repeats its instructions instead of summarising")
    if _foreign(_TOOL_CALL, summary, material):
        raise ContentFailure("the summary holds a tool call written as text")
    if _foreign(_REASONING, summary, material):
        raise ContentFailure("the summary holds tags of the model's reasoning")
    if is_refusal(summary):
        raise ContentFailure("the summary is a refusal, or asks for the material, instead of a summary")
    if _repeats(summary, material):
        raise ContentFailure("the summary repeats the same words over and over")


def is_refusal(text: str) -> bool:
    """Say whether a text declines to summarise, or asks for something to summarise."""
    beginning = _LABEL.sub("", text.strip().lstrip("\"'“*#> "))
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
