import pytest

from models import ConfigurationFailure, ContentFailure, TransientFailure
from tasks.backoff import retry_seconds


@pytest.mark.parametrize(("attempt", "longest"), [(1, 60), (2, 120), (3, 240), (7, 3600), (50, 3600), (10**6, 3600)])
def test_waits_are_spread_between_half_a_minute_and_a_limit_that_doubles(attempt: int, longest: float) -> None:
    """FAILURES 14: after an outage, all retries falling due in the same second."""
    for failure in (TransientFailure("x"), ContentFailure("x")):
        waits = [retry_seconds(failure, attempt) for _ in range(2000)]
        assert min(waits) >= 30
        assert max(waits) <= longest
        middle = (30 + longest) / 2
        assert 0.9 * middle < sum(waits) / len(waits) < 1.1 * middle
        assert len({round(wait, 3) for wait in waits}) > 1000


def test_a_server_that_names_a_time_is_obeyed_up_to_an_hour() -> None:
    failure = TransientFailure("x")
    failure.retry_after_seconds = 7
    assert retry_seconds(failure, 1) == 7
    failure.retry_after_seconds = 10**9
    assert retry_seconds(failure, 1) == 3600


def test_what_has_to_be_mended_waits_long() -> None:
    assert 1800 <= retry_seconds(ConfigurationFailure("x"), 1) <= 3600
