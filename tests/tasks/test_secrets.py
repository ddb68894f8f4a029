"""Shapes of known secrets are taken out of a summary, and nothing else is."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.secrets import REMOVED, remove_secrets

A = "a1B2c3D4e5F6g7H8i9J0"  # twenty characters of no secret
SECRETS = {
    "OpenAI": f"sk-proj-{A}{A}",
    "Anthropic": f"sk-ant-api03-{A}{A}",
    "AWS": "AKIA" + "ABCDEFGHIJ234567",
    "GitHub": f"ghp_{A}{A}"[:44],
    "GitHub, fine-grained": f"github_pat_{A}{A}",
    "GitLab": f"glpat-{A}{A}",
    "Slack": f"xoxb-{A}",
    "Stripe": f"sk_live_{A}",
    "Google": f"AIza{A}{A}"[:39],
    "Hugging Face": f"hf_{A}{A}",
    "npm": f"npm_{A}{A}"[:40],
    "SendGrid": f"SG.{A}.{A}{A}",
    "a JSON web token": f"eyJ{A}.eyJ{A}.{A}",
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A}\n{A}\n-----END OPENSSH PRIVATE KEY-----",
    "a private key that is cut off": f"-----BEGIN RSA PRIVATE KEY-----\n{A}",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_taken_out_wherever_it_stands(secret: str) -> None:
    for before, after in (("It is ", ""), ("", ""), ("(", ")"), ("\u5bc6\u94a5\u662f ", "\u3002")):
        text, removed = remove_secrets(before + secret + after)
        assert removed == 1
        assert secret not in text
        assert text.startswith(before + REMOVED)


WITHIN = {
    "a password in a URL": ("postgresql://ada:h4nter-two@db/app", "postgresql://ada:[secret removed]@db/app"),
    "a bearer": (f"Authorization: Bearer {A}{A}", "Authorization: Bearer [secret removed]"),
    "an assignment": ("DB_PASSWORD=h4nter-two and so on", "DB_PASSWORD=[secret removed] and so on"),
    "JSON": ('{"api_key": "h4nter-two"}', '{"api_key": "[secret removed]"}'),
    "in words": ("the password is h4nter-two, they said", "the password is [secret removed], they said"),
}


@pytest.mark.parametrize(("text", "left"), WITHIN.values(), ids=WITHIN.keys())
def test_what_it_is_for_stays(text: str, left: str) -> None:
    assert remove_secrets(text) == (left, 1)


HARMLESS = (
    "The password is in the vault, and the token expired; the secret: nobody knew it.",
    "sk-learn and task-runner, desk-12, a1b2c3d4, commit 3f2a9c1e07e44d5a91b0c7d2aa318f01cc11dd22",
    "https://example.org:8080/a@b and git@example.org:team/app.git",
    "The id is 3f2a9c1e-07e4-4d5a-91b0-c7d2aa318f01, the token count 12,500.",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_none_stays(text: str) -> None:
    assert remove_secrets(text) == (text, 0)


@given(st.text(st.characters(codec="utf-8")))
@settings(max_examples=200, deadline=None)
def test_it_never_fails_and_is_done_after_once(text: str) -> None:
    once, _ = remove_secrets(text)
    assert remove_secrets(once)[0] == once


@pytest.mark.parametrize("unit", ["-eyJ", "eyJaaaaaaaaaa.", "password: ", "-----BEGIN ", "a://b:", "SG.aaaa"])
def test_hostile_repetition_takes_no_time(unit: str) -> None:
    began = time.monotonic()
    remove_secrets((unit * 131_072)[:131_072])  # four times what is stored: a square would show
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "API key: abcd1234efgh5678",
        "**password:** hunter2hunter2",
        "the password was hunter2hunter2",
        "passphrase: hunter2hunter2",
    ],
)
def test_what_is_said_to_be_a_secret_is_one(text: str) -> None:
    assert remove_secrets(text)[1] == 1


def test_a_moment_after_the_word_token_is_none() -> None:
    assert remove_secrets("token: 2026-03-01T09:00Z")[1] == 0
