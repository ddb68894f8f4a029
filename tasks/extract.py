"""A summary without any model: the most telling sentences of each snapshot, in order, with dates.

Sentences are ranked by how much of what they say is rare in the batch, an inverse document frequency after Karen Spärck
Jones (1972), with numbers and names counting double, for these are what a summary loses first.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from models.nodes import SummaryNode
from models.text import estimate_tokens
from tasks.prompt import target_tokens

EXTRACT_VERSION = "extract-1"
COMPACTION_LEVEL = 3

# A full stop ends a sentence only before white space, so that 3.14 and v2.0 stay whole; those of scripts written
# without spaces end it by themselves.
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])[\"')\]”’»]*\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w+", re.UNICODE)
_ELLIPSIS = "…"
_SMALLEST_PIECE_TOKENS = 4


@dataclass(frozen=True)
class _Sentence:
    snapshot: int
    position: int
    text: str
    tokens: int
    score: float


def extract(batch: Sequence[SummaryNode], max_tokens: int) -> str:
    """Return the most telling sentences of the batch, in its order, within half of its tokens and ``max_tokens``.

    Every snapshot is heard: its best sentence comes first, cut to the snapshot's share if need be; what room is left
    goes to the best of all the others. The same batch always gives the same text.
    """
    budget = target_tokens(batch, max_tokens)
    headings = _headings(batch)
    room = budget - sum(estimate_tokens(heading) + 1 for heading in headings if heading)
    if room < _SMALLEST_PIECE_TOKENS * len(batch):  # many tiny snapshots: what was said matters more than when
        headings, room = ["" for _ in batch], budget
    share = max(_SMALLEST_PIECE_TOKENS, room // len(batch))
    ranked = sorted(_sentences(batch), key=lambda s: (-s.score, s.snapshot, s.position))
    chosen: dict[int, list[_Sentence]] = {index: [] for index in range(len(batch))}
    for sentence in ranked:
        if not chosen[sentence.snapshot]:
            piece = _cut(sentence, share)
            chosen[sentence.snapshot].append(piece)
            room -= piece.tokens
    for sentence in ranked:
        first = chosen[sentence.snapshot][0]
        if sentence.position != first.position and sentence.tokens <= room:
            chosen[sentence.snapshot].append(sentence)
            room -= sentence.tokens
    return _render(headings, chosen)


def _sentences(batch: Sequence[SummaryNode]) -> list[_Sentence]:
    split = [
        (snapshot, position, text.strip())
        for snapshot, node in enumerate(batch)
        for position, text in enumerate(_SENTENCE_END.split(node.content))
        if text and text.strip()
    ]
    frequency = Counter(word for *_, text in split for word in _words(text))
    return [
        _Sentence(snapshot, position, text, estimate_tokens(text) + 1, _score(text, frequency, len(split)))
        for snapshot, position, text in split
    ]


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _score(text: str, frequency: Counter[str], sentences: int) -> float:
    words = _WORD.findall(text)
    weights = (
        math.log(1 + sentences / frequency[word.casefold()]) * (2 if word[0].isupper() or word[0].isdigit() else 1)
        for word in {word.casefold(): word for word in words}.values()
    )
    # By the root of the length: the sum alone favours the longest sentence, the mean the shortest.
    return sum(weights) / math.sqrt(max(4, len(words)))


def _headings(batch: Sequence[SummaryNode]) -> list[str]:
    """Return the dates of each snapshot; empty where they are those of the snapshot before."""
    dates = [_dates(node) for node in batch]
    return [f"{date}:" if date != before else "" for date, before in zip(dates, ["", *dates], strict=False)]


def _dates(node: SummaryNode) -> str:
    days = list(
        dict.fromkeys(f"{at.astimezone(UTC):%Y-%m-%d}" for at in (node.started_at, node.ended_at) if at is not None)
    )
    return " to ".join(days) or f"messages {node.span_start} to {node.span_end}"


def _cut(sentence: _Sentence, tokens: int) -> _Sentence:
    """Return the sentence within so many tokens: whole, or its beginning, ended at a word where there are words."""
    if sentence.tokens <= tokens:
        return sentence
    low, high = 1, len(sentence.text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if estimate_tokens(sentence.text[:middle] + _ELLIPSIS) < tokens else (low, middle - 1)
        )
    kept = sentence.text[:low]
    head, space, _ = kept.rpartition(" ")
    kept = head if space and len(head) * 2 > len(kept) else kept
    # Not in the middle of an emoji or before an accent.
    while len(kept) > 1 and (kept[-1] in "\u200d\ufe0f" or unicodedata.combining(sentence.text[len(kept)])):
        kept = kept[:-1]
    text = kept.rstrip() + _ELLIPSIS
    return _Sentence(sentence.snapshot, sentence.position, text, estimate_tokens(text) + 1, sentence.score)


def _render(headings: list[str], chosen: dict[int, list[_Sentence]]) -> str:
    lines = []
    for index, heading in enumerate(headings):
        said = " ".join(sentence.text for sentence in sorted(chosen[index], key=lambda s: s.position))
        lines.append(" ".join(part for part in (heading, said) if part))
    return "\n".join(line for line in lines if line)
