"""Durations: what people say, in numbers and back."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed import SpecError
from streamshed.durations import LIMIT, describe, parse, to_units

spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(microseconds=LIMIT))


@pytest.mark.parametrize(
    ("said", "microseconds"),
    [
        ("7us", 7),
        ("7 microseconds", 7),
        ("7 ms", 7_000),
        ("1 millisecond", 1_000),
        ("1 s", 1_000_000),
        ("2 sec", 2_000_000),
        ("1 second", 1_000_000),
        ("10 minutes", 600_000_000),
        ("10 MIN", 600_000_000),
        ("1 h", 3_600_000_000),
        ("2 hours", 7_200_000_000),
        ("1 day", 86_400_000_000),
        ("2 weeks", 1_209_600_000_000),
        (" 1 hour 30 minutes ", 5_400_000_000),
        ("1h30min", 5_400_000_000),
        ("1.5 minutes", 90_000_000),
        (".5 s", 500_000),
        ("0.000001 s", 1),
        (timedelta(seconds=3), 3_000_000),
    ],
)
def test_spans_are_microseconds(said, microseconds):
    assert to_units(parse(said), time_is_timestamp=True) == microseconds


def test_numbers_are_in_the_unit_of_the_column():
    assert to_units(parse(7), time_is_timestamp=False) == 7
    assert to_units(parse(np.int16(7)), time_is_timestamp=False) == 7
    assert parse(LIMIT) == LIMIT


@pytest.mark.parametrize("zero", [0, "0 s", "0 minutes 0 ms", timedelta(0)])
@pytest.mark.parametrize("time_is_timestamp", [True, False])
def test_zero_is_zero_in_every_unit(zero, time_is_timestamp):
    assert parse(zero) == 0
    assert to_units(parse(zero), time_is_timestamp) == 0


@given(spans)
def test_describe_is_read_back(span):
    assert parse(describe(parse(span))) == parse(span)
    behind = parse(-span, signed=True)
    assert parse(describe(behind), signed=True) == behind


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("10 parsecs", ["'10 parsecs'", "'parsecs' is not a unit", "minute", "'secs'"]),
        ("5m", ["'m' is not a unit", "minute (min)", "Did you mean 'min'?"]),
        ("3 months", ["'months' is not a unit"]),
        ("10", ["'10'", "not a duration", "'10 minutes'"]),
        ("", ["''", "not a duration"]),
        ("ten minutes", ["'ten minutes'", "not a duration"]),
        ("10 minutes or so", ["'10 minutes or so'", "not a duration"]),
        ("0.5 us", ["'0.5 us'", "whole number of microseconds", "round"]),
        ("-5 s", ["'-5 s'", "negative", "0 or more"]),
        (-5, ["-5", "negative"]),
        (timedelta(seconds=-5), ["negative"]),
        (LIMIT + 1, [str(LIMIT + 1), "beyond 2**62", "shorter"]),
        ("99999999999999 weeks", ["beyond 2**62"]),
        (timedelta.max, ["beyond 2**62"]),
        (2.5, ["2.5", "not a duration", "timedelta", "whole number"]),
        (True, ["True", "not a duration"]),
        (None, ["None", "not a duration"]),
        (np.timedelta64(5, "s"), ["not a duration", "datetime.timedelta"]),
    ],
)
def test_what_is_no_duration_is_refused(said, words):
    with pytest.raises(SpecError) as error:
        parse(said, "the window of stream 'a'")
    for word in ["the window of stream 'a'", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("said", "time_is_timestamp", "words"),
    [
        ("10 min", False, ["'10 minutes'", "plain integers", "give a number"]),
        (timedelta(hours=1), False, ["'1 hour'", "plain integers"]),
        (10, True, ["bare number 10", "timestamps", "'10 seconds'"]),
    ],
)
def test_the_unit_must_fit_the_time_column(said, time_is_timestamp, words):
    with pytest.raises(SpecError) as error:
        to_units(parse(said), time_is_timestamp, "`late`")
    for word in ["`late`", *words]:
        assert word in str(error.value)
