"""A model's change and a person's, made to one text at the same time."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from langchain_nanomem.merging import merge_lines

LINE = st.sampled_from(["", "# A", "# B", "- a", "- b", "- c", "- d", "  ", "é😀"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
ODD = st.sampled_from(["\x1e", "\u2028- a", "- a\x0b", "\x85"])
TEXT = st.lists(LINE | ODD, max_size=8).map("\n".join)


def lines_of(text):
    """As editors see them: what `str.splitlines` takes for an end besides is part of a line."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def filled(text):
    return {line for line in lines_of(text) if line.strip()}


@given(TEXT, TEXT, TEXT)
def test_the_person_wins(base, theirs, ours):
    """cases/consolidation.md 26: every line a person added is there, none that they removed."""
    merged = filled(merge_lines(base, theirs, ours))
    assert filled(theirs) - filled(base) <= merged
    assert not (filled(base) - filled(theirs)) & merged


@given(TEXT, TEXT, TEXT)
def test_nothing_else_changes(base, theirs, ours):
    """What the model wrote and nobody removed stays, in its order; nothing is made up."""
    merged = lines_of(merge_lines(base, theirs, ours))
    removed = filled(base) - filled(theirs)
    kept = [line for line in lines_of(ours) if line.strip() and line not in removed]
    rest = iter(merged)
    assert all(line in rest for line in kept)
    assert {line for line in merged if line.strip()} <= filled(ours) | filled(theirs)


@given(TEXT, TEXT)
def test_no_edit_leaves_the_model_s_text(base, ours):
    """Without an edit of a person the model's lines come out as they are."""
    assert lines_of(merge_lines(base, base, ours)) == lines_of(ours)


@given(TEXT, TEXT)
def test_no_change_of_the_model_leaves_the_person_s_lines(base, theirs):
    """Where the model changed nothing, the result has just the person's lines."""
    assert filled(merge_lines(base, theirs, base)) == filled(theirs)


@given(TEXT, TEXT, TEXT)
def test_merging_again_changes_nothing(base, theirs, ours):
    """A merge that is carried out again after a crash gives the same text."""
    merged = merge_lines(base, theirs, ours)
    assert filled(merge_lines(base, theirs, merged)) == filled(merged)


def test_an_added_line_stands_where_the_person_put_it():
    """An added line follows the line that it follows in the person's text."""
    base = "# People\n- Ada\n\n# Plans\n- move\n"
    theirs = "# People\n- Ada\n- Bob\n\n# Plans\n- move\n"
    ours = "# People\n- Ada\n- Eve\n\n# Plans\n- move in June\n"
    assert merge_lines(base, theirs, ours) == (
        "# People\n- Ada\n- Bob\n- Eve\n\n# Plans\n- move in June\n"
    )


def test_several_added_lines_keep_their_order():
    """Lines added one behind the other stay so."""
    assert merge_lines("- a", "- a\n- x\n- y\n- z", "- a\n- m") == "- a\n- x\n- y\n- z\n- m"


def test_a_line_added_at_the_top_stays_at_the_top():
    """A line in front of all others is put in front."""
    assert merge_lines("- a", "- x\n- a", "- a\n- b") == "- x\n- a\n- b"


def test_a_line_with_no_place_left_goes_to_the_end():
    """Where the line it stood behind is gone, an added line comes last."""
    assert merge_lines("- a\n", "- a\n- x\n", "- b\n") == "- b\n- x\n"


def test_windows_line_ends_are_no_edit():
    """An editor that saved with CRLF changed nothing."""
    assert merge_lines("- a\n- b", "- a\r\n- b\r\n", "- a\n- b\n- c") == "- a\n- b\n- c"
