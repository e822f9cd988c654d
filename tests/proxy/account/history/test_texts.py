"""Texts are kept within a bound, and what was erased stays away."""

import sqlite3

from trimtab.proxy.account.history.table import open_in_memory
from trimtab.proxy.account.history.texts import (
    attach,
    erase_texts,
    find_text,
    keep_text,
    pack_text,
    read_notes,
    write_notes,
)
from trimtab.proxy.account.outcome import OutcomeText
from trimtab.rules.pipeline.changes import Change, Fate

TEXT = OutcomeText(("told",), (Change(3, "tool", "read", Fate.PRUNED, ("prune",), 9, 2, "before é", "after"),), "sum")
PACKED = pack_text(TEXT)


def test_the_oldest_texts_give_way(connection):
    for name in "abcde":
        keep_text(connection, name, "s", 1.0, PACKED, 3 * PACKED.size_bytes)
    assert [name for name in "abcde" if find_text(connection, name)] == list("cde")
    erase_texts(connection)
    assert not any(find_text(connection, name) for name in "cde")


def test_to_add_up_the_sizes_reads_no_text(connection):
    """Else each text would cost the reading of all of them, while the other workers wait."""
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT SUM(size_bytes) FROM private.texts").fetchall()
    assert "COVERING INDEX" in plan[0][3]


def test_what_was_erased_while_it_was_written_is_not_kept(connection):
    connection.execute("INSERT INTO private.erased VALUES ('s', 1, 5.0), ('t', 0, 5.0)")
    for name, session, at in (("a", "s", 5.0), ("b", "t", 4.0), ("c", "t", 6.0), ("d", "u", 1.0)):
        keep_text(connection, name, session, at, PACKED, 10**6)
    assert [name for name in "abcd" if find_text(connection, name)] == list("cd")


def test_texts_are_never_in_the_file_of_the_rows(tmp_path):
    connection = sqlite3.connect(tmp_path / "events", isolation_level=None)
    attach(connection, str(tmp_path / "texts"))
    other = open_in_memory()
    attach(other, str(tmp_path / "texts"))
    keep_text(connection, "a", "s", 1.0, PACKED, 10**6)
    assert find_text(other, "a") == PACKED.pack
    assert connection.execute("SELECT COUNT(*) FROM main.sqlite_master").fetchone() == (0,)
    connection.close()
    other.close()


def test_a_worker_reads_what_the_others_have_noted(connection):
    for worker, notes in ((1, b"[1]"), (2, b"[2]"), (2, b"[3]")):
        write_notes(connection, worker, notes)
    assert read_notes(connection, 1) == [b"[3]"]
