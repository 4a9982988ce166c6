"""Regular expressions of others: bounded in processor time, and by nothing that the machine does besides."""

from __future__ import annotations

import hashlib
import threading
import time

from drsai_backend.strategies.router.patterns import SECONDS, Patience

ENDLESS = r"^(?:a|aa|a?a)+$"
TEXT = "a" * 200 + "b"


def test_one_that_does_not_end_is_passed_over_and_takes_the_time_of_all() -> None:
    patience, before = Patience(), time.thread_time()
    assert patience.find(ENDLESS, TEXT) is None
    assert SECONDS <= time.thread_time() - before < SECONDS * 4
    assert patience.find("b", TEXT) is None
    assert Patience().find("b", TEXT) == {}


def test_a_busy_machine_takes_nothing_of_it() -> None:
    patience, over = Patience(), threading.Event()
    data = bytes(5_000_000)

    def burn() -> None:
        while not over.is_set():
            hashlib.sha256(data).digest()  # Beside this thread: it holds no lock.

    busy = threading.Thread(target=burn)
    busy.start()
    try:
        time.sleep(SECONDS * 3)
        # Half of what it may take; the process's clock runs twice as fast.
        began = time.thread_time()
        while time.thread_time() - began < SECONDS / 2:
            pass
        assert patience.find(r"\bpoem\b", "word " * 700 + "a poem") == {}
    finally:
        over.set()
        busy.join()
