"""Images are decoded once, to see that they can be, in a process that may die of them."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from drsai_backend.models import images
from drsai_backend.models.images import MAX_PIXELS, check_images, read_image

# It decodes as the real program does, and dies of images that say so.
DYING = """
import base64, json, os, runpy
def main(data):
    if any(b"die of me" in base64.b64decode(text) for text in json.loads(data)["images"]):
        os.abort()
    return runpy.run_path({real!r})["main"](data)
"""


def file(width: int, height: int, kind: str = "PNG", more: bytes = b"") -> str:
    written = io.BytesIO()
    Image.new("L", (width, height)).save(written, kind)
    return base64.b64encode(written.getvalue() + more).decode()


def test_images_are_counted_up_to_the_first_that_cannot_be_used() -> None:
    assert check_images([file(30, 20), file(10, 10, "JPEG"), file(5, 5, "WEBP"), file(1, 1, "GIF")]) == [
        600,
        100,
        25,
        1,
    ]
    assert check_images([file(30, 20), file(1500, 1200)[:1000], file(1, 1)]) == [600, None]
    assert check_images([file(1, 1, "BMP")]) == [None]
    large = file(5_001, 5_000)
    assert check_images([large, large, file(1, 1)]) == [5_001 * 5_000] * 2


def test_a_bomb_is_not_decoded() -> None:
    """Decoded, it would take more memory than its process may have."""
    side = 40_000
    row, packed = bytes(1 + side // 8), zlib.compressobj(1)
    pixels = b"".join(packed.compress(row * 1000) for _ in range(side // 1000)) + packed.flush()
    # One bit a pixel: to make one is cheap, and decoded, a pixel is a byte.
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)), (b"IDAT", pixels), (b"IEND", b""))
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    assert check_images([base64.b64encode(bomb).decode()]) == [side * side]
    assert side * side > MAX_PIXELS


def test_what_kills_its_decoder_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = tmp_path / "dying.py"
    dying.write_text(DYING.format(real=str(images._INSIDE)))
    monkeypatch.setattr(images, "_INSIDE", dying)
    deadly = file(2, 2, more=b"die of me")
    assert check_images([file(3, 1), file(1, 1)]) == [3, 1]
    assert check_images([file(3, 1), deadly, file(1, 1)]) == [3, None, 1]
    with pytest.raises(ValueError, match="cannot be decoded"):
        read_image(deadly)


def test_what_takes_too_long_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ndef main(data):\n    time.sleep(60)\n")
    monkeypatch.setattr(images, "_INSIDE", slow)
    monkeypatch.setattr(images, "_SECONDS", 0.5)
    assert check_images([file(3, 1)]) == [None]


def test_other_formats_become_png() -> None:
    kept = file(4, 2, "JPEG")
    assert read_image(kept).to_base64() == kept
    made = read_image(file(4, 2, "BMP"))
    assert (made.image.format, made.image.size) == ("PNG", (4, 2))
    for broken in ("", "no base64", file(9, 9)[:40]):
        with pytest.raises(ValueError, match="cannot be decoded"):
            read_image(broken)
