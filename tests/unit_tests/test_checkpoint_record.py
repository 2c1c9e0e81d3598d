"""How a checkpoint's record is written."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from langchain_nanomem.checkpoint_record import shortened, understood, whole, written
from langchain_nanomem.values import dump_record, load_record

versions = st.one_of(
    st.integers(0, 10**9),
    st.floats(0, 1e9),
    st.text(max_size=5),
    st.from_regex(r"[0-9]{1,40}\.[0-9]*", fullmatch=True),
    st.builds(lambda n, rest: f"{n:032}.{rest}", st.integers(0, 999), st.text("0123456789.")),
)
channels = st.sampled_from(["messages", "__start__", "branch:to:reply", "x"])


@given(versions)
def test_a_version_comes_back_whole(version):
    """Whatever a saver takes for a version, also text that looks like a shortened one."""
    again = whole(load_record(dump_record({"v": shortened(version)}))["v"])
    assert (type(again), again) == (type(version), version)


def test_a_version_is_written_without_its_zeros():
    """Only the zeros that make LangGraph's versions sort as text are left out."""
    assert shortened("00000000000000000000000000000031.0.180957") == "31.0.180957"
    assert shortened("31.0.180957") == ["31.0.180957"]


@given(
    st.dictionaries(channels, versions),
    st.dictionaries(channels, st.tuples(versions, st.just({"json": 1}))),
    st.none() | st.dictionaries(st.text(max_size=3), st.dictionaries(channels, versions)),
)
@example({"messages": 0}, {"messages": (0.0, {"json": 1})}, None)
def test_a_record_comes_back_as_it_was(known, values, seen):
    """Each version of each channel and of what each node saw, and the values that are new."""
    record = {"_type": "checkpoint", "versions": known, "values": values}
    if seen is not None:
        record["seen"] = seen
    again = understood(load_record(dump_record(written(record))))
    del again["known"]
    assert repr(again) == repr(record)


def test_a_record_of_an_earlier_form_is_understood():
    """Versions and values as they were first written: data that is there stays readable."""
    version = "00000000000000000000000000000002.0.5"
    record = {"versions": {"a": version}, "values": {"a": [version, {"json": 1}]}}
    assert understood(record) == {
        "versions": {"a": version},
        "values": {"a": (version, {"json": 1})},
    }
