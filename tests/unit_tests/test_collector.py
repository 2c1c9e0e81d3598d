"""The cyclic collector's pauses: short, one at a time, and never for good."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from langchain_nanomem.collector import paused


def test_nothing_is_collected_in_the_block():
    """The collector is off in it, and on again after it."""
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause():
    """Whatever is raised in the block, the collector is on again."""
    with pytest.raises(ValueError, match="stop"), paused():
        raise ValueError("stop")
    assert gc.isenabled()


def test_a_block_in_a_block():
    """The outer one's pause lasts until the outer one ends."""
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_program_has_switched_off_stays_off():
    """A program without a collector is left without one."""
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_only_one_thread_pauses():
    """The collector is on as soon as the one that paused it has ended."""
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with paused():
            entered.set()
            leave.wait(20)

    with paused():
        other = threading.Thread(target=stay)
        other.start()
        assert entered.wait(20)
    assert gc.isenabled()
    leave.set()
    other.join()
    assert gc.isenabled()


FORK = """
import gc, os, threading
from langchain_nanomem.collector import paused

entered, leave = threading.Event(), threading.Event()

def stay():
    with paused():
        entered.set()
        leave.wait(20)

thread = threading.Thread(target=stay)
thread.start()
entered.wait(20)
child = os.fork()
if not child:
    right = gc.isenabled()
    with paused():
        right = right and not gc.isenabled()
    os._exit(0 if right and gc.isenabled() else 1)
leave.set()
thread.join()
with paused():
    forked = os.fork()
    if not forked:
        pass
if not forked:
    os._exit(0 if gc.isenabled() else 1)
print([os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in (child, forked)])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")
def test_a_forked_process_collects():
    """Whoever paused when it was forked, a child has a collector, and can pause it."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 0]"
