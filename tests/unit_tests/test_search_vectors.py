"""The search by meaning, where an embedder is given."""

from __future__ import annotations

import logging
import random
import sqlite3
import sys
import threading
from array import array
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage

from langchain_nanomem import MemoryStore, Nanomem, search_vectors
from langchain_nanomem.search_places import search_path

pytestmark = pytest.mark.back_ends("files", "postgres")
ON_FILES = pytest.mark.back_ends("files")
NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
THINGS = [
    {"dog", "puppy", "hound", "rex"},
    {"car", "automobile", "vehicle", "zanzibar"},
    {"doctor", "physician"},
]


class Thesaurus(Embeddings):
    """Texts by how often they name each thing, whatever the word; keeps what it was given."""

    def __init__(self, model="small", extra=0):
        self.model = model
        self.extra = extra
        self.passages: list[str] = []
        self.queries: list[str] = []

    def vector(self, text):
        words = text.casefold().replace(".", " ").split()
        counts = [sum(word in thing for word in words) for thing in THINGS]
        return [*map(float, counts), 0.01, *[0.0] * self.extra]

    def embed_documents(self, texts):
        self.passages += texts
        return [self.vector(text) for text in texts]

    def embed_query(self, text):
        self.queries.append(text)
        return self.vector(text)


class Failing(Thesaurus):
    """Fails where it is told to."""

    def __init__(self, how, what):
        super().__init__()
        self.how, self.what = how, what

    def spoilt(self, vectors):
        if self.how == "raises":
            raise ConnectionError("no network")
        if self.how == "fewer":
            return vectors[1:]
        bad = {
            "nan": [float("nan")] * 4,
            "infinite": [1e300] * 4,
            "empty": [],
            "longer": [1.0] * 5,
            "none": None,
        }[self.how]
        return [bad, *vectors[1:]]

    def embed_documents(self, texts):
        vectors = super().embed_documents(texts)
        return self.spoilt(vectors) if self.what == "passages" else vectors

    def embed_query(self, text):
        vector = super().embed_query(text)
        return self.spoilt([vector])[0] if self.what == "query" else vector


@pytest.fixture
def embedder():
    return Thesaurus()


@pytest.fixture
def mem(open_memory, embedder):
    return open_memory(embedder=embedder)


def say(mem, key, *texts, at=NOON):
    mem.history(key).add_messages(
        [
            (HumanMessage, AIMessage)[n % 2](
                text,
                additional_kwargs={"timestamp": (at + timedelta(minutes=n)).isoformat()},
            )
            for n, text in enumerate(texts)
        ]
    )


def found(store, query, **options):
    return [hit.text for hit in store.search_history(query, **options)]


def kept(mem, scope=()):
    """The passages of an index that have a vector, with it."""
    with mem.memory_for(scope)._index._tables.opened() as rows:
        if rows.embedder() is None:
            return {}
        vectors = {one.passage: one.vector for one in rows.vectors_behind(0)}
        return {text: vectors[number] for number, text in rows.texts_of([*vectors]).items()}


def index_of(mem, scope=()):
    return search_path(mem.sessions.journal.workspace, scope)


@pytest.mark.parametrize("has_numpy", [True, False])
def test_what_shares_no_word_is_found(mem, has_numpy, monkeypatch):
    """A synonym in what was said and in the log, with numpy and without it, nearest first."""
    if not has_numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    say(mem, "s", "My puppy barks.", "Fine weather.", "The automobile and the hound.")
    mem.memory.append_history("A physician was seen.")
    hits = mem.memory.search_history("dog")
    assert [hit.text for hit in hits if hit.kind == "said"][:2] == [
        "My puppy barks.",
        "The automobile and the hound.",
    ]
    assert hits[0].score == 1
    assert found(mem.memory, "doctor", kinds=["logged"]) == ["A physician was seen."]
    assert "physician" in mem.tools()[0].invoke({"query": "doctor"})


def test_without_an_embedder_nothing_of_it_is_there(tmp_path, embedder):
    """No table, no other hit; a store without one leaves what one with it made alone."""
    mem = Nanomem(tmp_path)
    say(mem, "s", "My puppy barks.")
    assert found(mem.memory, "dog") == []
    with closing(sqlite3.connect(index_of(mem))) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert not {"vectors", "embedder", "vector_goes"} & {name for (name,) in tables}
    assert found(MemoryStore(tmp_path, embedder=embedder), "dog") == ["My puppy barks."]
    assert found(mem.memory, "dog") == []


def test_only_what_is_new_is_embedded(mem, embedder, open_memory):
    """Each passage once, in this process and the next; a query once in a row; no blank one."""
    say(mem, "s", "My puppy barks.", "Good.", "!!!")
    found(mem.memory, "dog")
    assert sorted(embedder.passages) == ["Good.", "My puppy barks."]
    say(mem, "s", "It is a hound.")
    assert found(mem.memory, "dog")[0] in {"My puppy barks.", "It is a hound."}
    assert embedder.passages[2:] == ["It is a hound."]
    assert embedder.queries == ["dog"]
    later = Thesaurus()
    assert "It is a hound." in found(open_memory(embedder=later).memory, "dog")
    assert later.passages == []


def test_the_newest_are_embedded_first_and_so_many_at_a_time(mem, embedder, monkeypatch):
    """A long backlog is done over several searches."""
    monkeypatch.setattr(search_vectors, "_MOST_AT_ONCE", 4)
    monkeypatch.setattr(search_vectors, "_BATCH", 2)
    say(mem, "new", *(f"new {n}" for n in range(3)), at=NOON + timedelta(days=1))
    say(mem, "old", *(f"old {n}" for n in range(3)))
    found(mem.memory, "dog")
    assert embedder.passages == ["new 2", "new 1", "new 0", "old 2"]
    found(mem.memory, "dog")
    found(mem.memory, "dog")
    assert embedder.passages[4:] == ["old 1", "old 0"]


@ON_FILES
@pytest.mark.parametrize("how", ["delete", "clear", "thread", "by hand"])
def test_the_vectors_of_what_is_deleted_are_in_no_byte(mem, how):
    """They leave the index with their passages, also by the hand of who has no embedder."""
    say(mem, "s", "my zanzibar secret")
    say(mem, "t", "a puppy")
    found(mem.memory, "dog")
    path = index_of(mem)
    vectors = kept(mem)
    workspace = mem.sessions.journal.workspace
    assert any(vectors["my zanzibar secret"] in one.read_bytes() for one in path.parent.iterdir())
    other = Nanomem(workspace)
    if how == "delete":
        other.sessions.delete("s")
    elif how == "clear":
        other.history("s").clear()
    elif how == "thread":
        other.checkpointer.delete_thread("s")
    else:
        other.sessions.journal.path("s").unlink()
        found(other.memory, "dog")
    for one in path.parent.iterdir():
        content = one.read_bytes()
        assert vectors["my zanzibar secret"] not in content
        assert b"zanzibar" not in content
    assert list(kept(mem)) == ["a puppy"]
    assert found(mem.memory, "car dog") == ["a puppy"]


@pytest.mark.parametrize("change", [{"model": "large"}, {"extra": 2}])
def test_another_embedder_begins_anew(mem, open_memory, embedder, change):
    """Another model, or dimension: the old vectors are thrown away, and come again with the old."""
    say(mem, "s", "My puppy barks.", "Good.")
    found(mem.memory, "dog")
    before = kept(mem)
    other = Thesaurus(**change)
    assert found(open_memory(embedder=other).memory, "dog")[0] == "My puppy barks."
    assert len(other.passages) == 2
    after = kept(mem)
    assert before.keys() == after.keys()
    assert {len(vector) for vector in after.values()} == {16 + 4 * other.extra}
    assert found(mem.memory, "dog")[0] == "My puppy barks."
    assert len(embedder.passages) == 4


WRONG = ("raises", "nan", "infinite", "empty", "none", "fewer")


@pytest.mark.parametrize(
    ("what", "how"),
    [
        *(("query", how) for how in WRONG),
        *(("passages", how) for how in (*WRONG, "longer")),  # a query tells the dimension
    ],
)
def test_an_embedder_that_fails_fails_no_search(open_memory, caplog, what, how):
    """Words alone are ranked, with one warning; it is not asked again for a while."""
    embedder = Failing(how, what)
    mem = open_memory(embedder=embedder)
    say(mem, "s", "My dog barks.", "Good.")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert found(mem.memory, "dog")[0] == "My dog barks."
        assert found(mem.memory, "nothing of that") == []
    assert len(caplog.records) == 1
    assert "words alone" in caplog.records[0].message
    assert len(embedder.queries) == (1 if what == "query" else 2)
    assert len(embedder.passages) == (0 if what == "query" else 2)


def test_an_embedder_that_works_again_is_used(open_memory, monkeypatch):
    """A passage that it can't take holds up no other."""
    monkeypatch.setattr(search_vectors, "_PAUSE_SECONDS", 0.0)
    embedder = Failing("raises", "passages")
    mem = open_memory(embedder=embedder)
    say(mem, "s", "My puppy barks.", "Good.")
    found(mem.memory, "dog")
    assert kept(mem) == {}
    bad = "Good."
    embedder.embed_documents = lambda texts: (
        Thesaurus.embed_documents(embedder, texts) if bad not in texts else 1 / 0
    )
    assert found(mem.memory, "dog") == ["My puppy barks."]
    assert list(kept(mem)) == ["My puppy barks."]


def test_nothing_of_another_scope_is_embedded_or_compared(open_memory, embedder):
    """Each user's passages are embedded at that user's search, into that user's index."""
    mem = open_memory(scope="user", embedder=embedder)
    for user, text in (("ann", "A puppy of Ann."), ("bob", "A hound of Bob.")):
        mem.sessions.bind_scope(user, ("user", user))
        say(mem, user, text)
        mem.memory_for(("user", user)).append_history(f"{text} Logged.")
    ann = mem.memory_for(("user", "ann"))
    assert set(found(ann, "dog")) == {"A puppy of Ann.", "A puppy of Ann. Logged."}
    assert all("Ann" in text for text in embedder.passages)
    assert len(kept(mem, ("user", "ann"))) == 2
    assert kept(mem, ("user", "bob")) == {}
    assert set(found(mem.memory_for(("user", "bob")), "dog")) == {
        "A hound of Bob.",
        "A hound of Bob. Logged.",
    }
    assert found(mem.memory, "dog") == []


def test_what_is_asked_for_is_kept_to(mem):
    """Time, session, tags, phrases and kinds hold for what is near by meaning too."""
    say(mem, "a", "A puppy #Pets.")
    say(mem, "b", "A hound.", at=NOON + timedelta(days=2))
    mem.memory.append_history("Rex came.", at=NOON + timedelta(days=4), source="b 0-1")
    store = mem.memory
    assert set(found(store, "dog")) == {"A puppy #Pets.", "A hound.", "Rex came."}
    assert found(store, "dog", until=NOON + timedelta(days=1)) == ["A puppy #Pets."]
    assert set(found(store, "dog", since=NOON + timedelta(days=1))) == {"A hound.", "Rex came."}
    assert set(found(store, "dog", session_id="b")) == {"A hound.", "Rex came."}
    assert found(store, "dog", tags=["pets"]) == ["A puppy #Pets."]
    assert found(store, 'dog "a hound"') == ["A hound."]
    assert found(store, "dog", kinds=["logged"]) == ["Rex came."]
    assert found(store, "dog", kinds=[]) == []
    assert len(found(store, "dog", limit=2)) == 2


@ON_FILES
@pytest.mark.parametrize("damage", ["bytes", "vector", "table", "gone"])
def test_a_damaged_index_is_built_anew_with_its_vectors(mem, tmp_path, damage, caplog):
    """With one warning at most; what means the same is found all the same."""
    say(mem, "s", "My puppy barks.", *(f"word{n} and more of it" for n in range(50)))
    assert found(mem.memory, "dog")[0] == "My puppy barks."
    path = index_of(mem)
    mem.close()
    if damage == "bytes":
        content = bytearray(path.read_bytes())
        content[100:] = random.Random(1).randbytes(len(content) - 100)
        path.write_bytes(content)
    elif damage == "gone":
        path.unlink()
    else:
        with closing(sqlite3.connect(path)) as connection:
            sql = "UPDATE vectors SET vector=x'00'" if damage == "vector" else "DROP TABLE vectors"
            connection.execute(sql)
            connection.commit()
    with caplog.at_level(logging.WARNING):
        other = Nanomem(tmp_path, embedder=Thesaurus())
        assert found(other.memory, "dog")[0] == "My puppy barks."
    assert len(caplog.records) == (1 if damage in {"bytes", "vector"} else 0)
    assert len(kept(mem)) == 51


def test_no_lock_is_held_while_an_embedder_is_asked(open_memory):
    """Another thread searches by words meanwhile; what is deleted meanwhile gets no vector."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Thesaurus):
        def embed_documents(self, texts):
            begun.set()
            assert go_on.wait(30)
            return super().embed_documents(texts)

    mem = open_memory(embedder=Slow())
    say(mem, "s", "My puppy barks.")
    say(mem, "t", "A secret hound.")
    results = []
    thread = threading.Thread(target=lambda: results.append(found(mem.memory, "dog")))
    thread.start()
    assert begun.wait(30)
    without = MemoryStore(mem.memory.backend, sessions=mem.sessions)
    assert found(without, "barks") == ["My puppy barks."]
    assert found(mem.memory, "barks") == ["My puppy barks."]
    mem.sessions.delete("t")
    go_on.set()
    thread.join()
    assert results == [["My puppy barks."]]
    assert list(kept(mem)) == ["My puppy barks."]


def test_vectors_are_of_length_one_in_four_bytes_a_number(mem):
    """So that products tell how alike they are."""
    say(mem, "s", "A dog, a dog and a puppy.", "My car.")
    found(mem.memory, "dog")
    for vector in kept(mem).values():
        assert sum(value**2 for value in array("f", vector)) == pytest.approx(1)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_is_above_zero(tmp_path, embedder, weight):
    """It is checked where it is given."""
    for make in (Nanomem, MemoryStore):
        with pytest.raises(ValueError, match="embedder_weight"):
            make(tmp_path, embedder=embedder, embedder_weight=weight)


def test_a_weight_decides_between_words_and_meaning(open_memory, embedder):
    """Below 1 the best by words comes first, above it the best by meaning."""
    mem = open_memory()
    say(mem, "a", "the dog which is a puppy of whatever kind")
    say(mem, "b", "dog dog car car car", at=NOON + timedelta(days=1))
    for weight, first in (
        (0.5, "dog dog car car car"),
        (1.5, "the dog which is a puppy of whatever kind"),
    ):
        store = open_memory(embedder=embedder, embedder_weight=weight).memory
        assert found(store, "dog")[0] == first
