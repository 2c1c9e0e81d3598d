"""What counts how much in the ranking. `benchmarks/recall.py` tells what each is worth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """The numbers of the ranking."""

    k1: float = 1.5
    b: float = 0.5
    before: float = 0.3
    two_before: float = 0.2
    after: float = 0.4
    two_after: float = 0.2
    asked_before: float = 0.8
    """What more the one before counts that ends in a question."""
    episode: float = 0.6
    told: float = 2.0
    """What a term in the event log counts in the episode that the entry tells of."""
    episode_k1: float = 1.5
    episode_b: float = 0.75
    question: float = 0.85
    """The factor of a passage that ends in a question."""
    time: float = 1.3
    """That of one that tells when, where that is asked for."""
    number: float = 1.2
    month: float = 1.3
    speaker: float = 1.15


WEIGHTS = Weights()
