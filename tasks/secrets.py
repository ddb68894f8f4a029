"""Shapes of known secrets, taken out of a summary before it is stored for ever.

A list of shapes finds what is made to be recognised: the prefixes that the issuers chose for this very purpose, private keys,
passwords in URLs and in assignments. It finds no secret that looks like any other word.
"""

import re

REMOVED = "[secret removed]"

_WHOLE = re.compile(
    r"""
      -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z0-9\ ]*PRIVATE\ KEY-----|\Z)   # PEM
    | (?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}                     # JSON web token
    | \bsk-[A-Za-z0-9_-]{20,}                                     # OpenAI, Anthropic, DeepSeek, OpenRouter
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                               # AWS
    | \bgh[pousr]_[A-Za-z0-9]{30,} | \bgithub_pat_\w{22,}         # GitHub
    | \bglpat-[\w-]{20,}                                          # GitLab
    | \bxox[abprs]-[\w-]{10,} | \bxapp-[\w-]{20,}                 # Slack
    | \b[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}                     # Stripe
    | \bAIza[\w-]{35}                                             # Google
    | \bya29\.[\w-]{20,}                                          # Google OAuth
    | \bhf_[A-Za-z0-9]{30,}                                       # Hugging Face
    | \bnpm_[A-Za-z0-9]{36}                                       # npm
    | \bpypi-[\w-]{50,}                                           # PyPI
    | \bSG\.[\w-]{20,}\.[\w-]{30,}                                # SendGrid
    | \bSK[0-9a-f]{32}\b                                          # Twilio
    | \bdop_v1_[0-9a-f]{64}                                       # DigitalOcean
    """,
    re.VERBOSE | re.DOTALL,
)

# Of these only the secret itself goes: what it is for may stay.
_WITHIN = (
    re.compile(
        r"(?P<before>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)(?P<secret>[^\s/@]{1,200})(?=@)", re.IGNORECASE
    ),
    re.compile(r"(?P<before>\bbearer\s+)(?P<secret>[\w.~+/-]{20,}=*)", re.IGNORECASE),
    re.compile(
        r"(?P<before>\b[\w-]{0,40}(?:password|passphrase|passwd|pwd|secret|api[ _-]?key|access[ _-]?key|token)"
        r"[\"'`*]{0,3}\s{0,3}(?::|=|\bis\b|\bwas\b)[\"'`*]{0,3}\s{0,3}[\"'`*]{0,3})(?!\d{4}-\d\d-\d\d)"
        r"(?P<secret>(?=[^\s\"'`,;]{0,199}\d)(?=[^\s\"'`,;]{0,199}[A-Za-z])[^\s\"'`,;*]{8,200})",
        re.IGNORECASE,
    ),
)


def remove_secrets(text: str) -> tuple[str, int]:
    """Return the text with each secret replaced, and how many there were."""
    text, removed = _WHOLE.subn(REMOVED, text)
    for shape in _WITHIN:
        text, more = shape.subn(lambda found: found["before"] + REMOVED, text)
        removed += more
    return text, removed
