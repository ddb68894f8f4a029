"""What of the input survives in a summary, and what in the summary stands in no input: computed without any model.

Only what can be compared letter by letter is looked at: numbers, dates, identifiers, addresses, paths and names. A summary
that keeps none of them has lost what a reader would search for; one that holds others has made them up. After the entity
measures of Nan et al., "Entity-level Factual Consistency of Abstractive Text Summarization" (2021).
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date

from models.nodes import SummaryNode

# "Yesterday" or "next week", said within a snapshot's time range, lies within so many days of it.
_NEARBY_DAYS = 14
# Whoever counts things writes small numbers that stand nowhere.
_COUNTED = 20

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<m{0}>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY, _YEAR = r"\b(?P<d{0}>\d{{1,2}})(?:st|nd|rd|th)?", r"(?P<y{0}>\d{{4}})\b"
# Letters and digits are those of ASCII, so that what is written without spaces in between, as in Chinese, is parted from them.
_FLAGS = re.ASCII | re.IGNORECASE
_DATE = re.compile(
    r"\b(?P<y1>\d{4})-(?P<m1>\d{1,2})-(?P<d1>\d{1,2})(?:T[\d:.]{1,20}Z?)?\b"
    rf"|{_DAY.format(2)}\s{{1,3}}(?:of\s{{1,3}})?{_MONTH.format(2)}\b(?:,?\s{{1,3}}{_YEAR.format(2)})?"
    rf"|\b{_MONTH.format(3)}\.?\s{{1,3}}{_DAY.format(3)}\b(?:,?\s{{1,3}}{_YEAR.format(3)})?"
    rf"|\b{_MONTH.format(4)}\.?,?\s{{1,3}}{_YEAR.format(4)}",
    _FLAGS,
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`)\]}|]+", _FLAGS)
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b", re.ASCII)
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]+)+/?|\b[\w.-]+(?:/[\w.-]+)+\b", re.ASCII)
_IDENTIFIER = re.compile(
    r"(?<!\w)#\d+\b|\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w+(?:[-_.]\w+)*\b|\b[A-Za-z]\w*_\w+\b|\b[a-z]+[A-Z]\w+\b"
    r"|\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b(?:\(\))?|\b[A-Z][a-z]+[A-Z]\w+\b",
    re.ASCII,
)
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:[.,:]\d+)*", re.ASCII)
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE = re.compile(r"(?:^|[.!?:;•\n]|\s[-*–—])\s*[\"'“(\[*_]*$")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
# Some patterns look ahead from every character as far as the next space: what has none for so long is left out, such as
# an encoded picture.
_BLOB = re.compile(r"[!-~]{300,}")
_ORDER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("address", _URL), ("", _BLOB), ("address", _EMAIL), ("date", _DATE), ("path", _PATH), ("identifier", _IDENTIFIER),
    ("number", _NUMBER),
)  # fmt: skip
_A_NUMBER = re.compile(r"\d+(?:[.,]\d+)*", re.ASCII)
_LONGEST_RANGE_DAYS = 400

Item = tuple[str, str]


@dataclass(frozen=True)
class Fidelity:
    """How a summary stands to its input.

    Attributes:
        survived: the share of the input's items that the summary holds; 1.0 when there are none.
        supported: the share of the summary's items that the input holds; 1.0 when there are none.
        unsupported: how many of the summary's items stand in no input.
        secrets: how many secrets were taken out of the summary.
    """

    survived: float
    supported: float
    unsupported: int
    secrets: int = 0

    def as_json(self) -> str:
        """Return it as it is kept with the node."""
        return json.dumps(asdict(self))


def measure(summary: str, batch: Sequence[SummaryNode], secrets: int = 0) -> Fidelity:
    """Compare a summary with the nodes that it was made from."""
    said = items(summary)
    material = "\n".join(node.content for node in batch)
    given = items(material)
    known = _Known(material, given, batch)
    unsupported = sum(not known.holds(item) for item in said)
    in_summary = _Known(summary, said, ())
    survived = sum(in_summary.holds(item) for item in given)
    return Fidelity(
        survived=round(survived / len(given), 3) if given else 1.0,
        supported=round(1 - unsupported / len(said), 3) if said else 1.0,
        unsupported=unsupported,
        secrets=secrets,
    )


def items(text: str) -> set[Item]:
    """Return what of a text can be compared: (kind, normalised form)."""
    text = _normalised(text)
    found: set[Item] = set()
    for kind, pattern in _ORDER:
        if kind:
            found.update(item for match in pattern.finditer(text) if (item := _normal(kind, match)) is not None)
        # What was an address is no name any more; the length stays, for names look at what stands before them.
        text = pattern.sub(lambda match: "\0" * len(match.group()), text)
    for match in _NAME.finditer(text):
        word = match.group()
        begins = _SENTENCE.search(text, max(0, match.start() - 6), match.start()) is not None or match.start() == 0
        if len(word) > 2 and word[0].isupper() and (not begins or word.isupper()):
            found.add(("name", word.casefold().removesuffix("'s").removesuffix("’s")))
    return found


def _normalised(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit.group())), text)


def _normal(kind: str, match: re.Match[str]) -> Item | None:
    text = match.group()
    if kind == "date":
        return _date(match)
    if kind == "number":
        digits = text.lstrip("+-")
        if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits):
            digits = digits.replace(",", "")
        return None if len(digits) <= 2 and int(digits) <= _COUNTED else (kind, digits)
    return kind, text.rstrip(".,;:!?/").casefold()


def _date(match: re.Match[str]) -> Item | None:
    part = match.groupdict()
    year = next((part[f"y{n}"] for n in "1234" if part[f"y{n}"]), None)
    month = part["m1"] or next(
        (str(_MONTHS.index(part[f"m{n}"][:3].lower()) + 1) for n in "234" if part[f"m{n}"]), None
    )
    day = next((part[f"d{n}"] for n in "123" if part[f"d{n}"]), None)
    if month is None or not 1 <= int(month) <= 12 or (day is not None and not 1 <= int(day) <= 31):
        return None
    return "date", "-".join((year or "?", f"{int(month):02}", f"{int(day):02}" if day else "?"))


class _Known:
    """What a text holds, asked item by item."""

    def __init__(self, text: str, found: set[Item], batch: Sequence[SummaryNode]) -> None:
        self._text = _normalised(text).casefold()
        self._words = set(re.findall(r"[^\W_][\w'’-]*", self._text)) | set(re.findall(r"[^\W_]+", self._text))
        self._numbers = set(_A_NUMBER.findall(self._text))
        self._found = found
        self._dates = {value for kind, value in found if kind == "date"} | set(_days_near(batch))
        self._date_forms = {form for date in self._dates for form in _forms(date)}
        self._years = {date[:4] for date in self._dates}

    def holds(self, item: Item) -> bool:
        kind, value = item
        if item in self._found:
            return True
        if kind == "date":
            return value in self._date_forms or not self._dates.isdisjoint(_forms(value))
        if kind == "name":
            return value in self._words
        if kind == "number":
            # It may be the year of a date that is told in full elsewhere.
            return value in self._numbers or value in self._years
        return value in self._text


def _days_near(batch: Sequence[SummaryNode]) -> Iterator[str]:
    """Return the days of the batch's time ranges, and those that may have been meant within them."""
    for node in batch:
        if node.started_at is not None:
            first = node.started_at.astimezone(UTC).date()
            last = (node.ended_at or node.started_at).astimezone(UTC).date()
            days = min((last - first).days, _LONGEST_RANGE_DAYS)
            for day in range(-_NEARBY_DAYS, days + _NEARBY_DAYS + 1):
                yield date.fromordinal(first.toordinal() + day).isoformat()


def _forms(day: str) -> set[str]:
    """Return a date with what else it may be called: without its year, without its day."""
    year, month, of_month = day.split("-")
    return {day, f"?-{month}-{of_month}", f"{year}-{month}-?"}
