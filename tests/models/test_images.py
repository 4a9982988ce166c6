"""Images are decoded once, to see that they can be, and not too many at a time."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from drsai_backend.models import images


class Counted(threading.BoundedSemaphore):
    """Knows how many shares were in use together."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.free = self.least = value
        self._counting = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        got = super().acquire(blocking, timeout)
        with self._counting:
            self.free -= 1
            self.least = min(self.least, self.free)
        return got

    def release(self, n: int = 1) -> None:
        with self._counting:
            self.free += n
        super().release(n)


def file(width: int, height: int) -> bytes:
    written = io.BytesIO()
    Image.new("L", (width, height)).save(written, "PNG")
    return written.getvalue()


def test_many_at_once_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Counted(3)
    monkeypatch.setattr(images, "_free", free)
    large, small = file(1500, 1200), file(10, 10)  # two shares, and one
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda data: images.check_image(data, 2_000_000), [large, small] * 12))
    assert found == [1_800_000, 100] * 12
    assert (free.free, free.least) == (3, 0)


def test_what_is_too_large_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Counted(3)
    monkeypatch.setattr(images, "_free", free)
    assert images.check_image(file(1500, 1200), 1_000_000) == 1_800_000
    assert free.least == 3


def test_what_cannot_be_decoded_gives_its_share_back(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Counted(3)
    monkeypatch.setattr(images, "_free", free)
    with pytest.raises(Exception, match="truncated"):
        images.check_image(file(1500, 1200)[:1000], 2_000_000)
    assert free.free == 3
