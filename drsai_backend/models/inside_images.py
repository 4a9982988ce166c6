"""The decoder of images is inside the process that `tools.apart` starts. Nothing of the package is imported here."""

import base64
import io
import json

from PIL import Image

Image.MAX_IMAGE_PIXELS = None  # The caller says what is allowed.


def main(data: bytes) -> bytes:
    """Decode images once, to see that they can be.

    Args:
        data: JSON with `images` (base64), `allowed` (the pixels that they may have together), `formats` (those that
            are passed on) and `converts` (whether others are made PNG; else they cannot be used).

    Returns:
        JSON with a pair for each image up to the first that cannot be used: its pixels, more than what is left where
        they are too many, or null where it cannot be decoded; and the PNG that was made of it, or null.
    """
    given = json.loads(data)
    found: list[tuple[int | None, str | None]] = []
    left, passed, converts = given["allowed"], given["formats"], given["converts"]
    for text in given["images"]:
        pixels = png = None
        try:
            file = io.BytesIO(base64.b64decode(text, validate=True))
            with Image.open(file, formats=None if converts else passed) as opened:
                if opened.width * opened.height <= left:
                    opened.load()
                    if opened.format not in passed:
                        made = io.BytesIO()
                        opened.save(made, "PNG")
                        png = base64.b64encode(made.getvalue()).decode()
                pixels = opened.width * opened.height
        except Exception:  # noqa: BLE001, S110  # Pillow's decoders raise what they please on broken data.
            pass
        found.append((pixels, png))
        if pixels is None or pixels > left:
            break
        left -= pixels
    return json.dumps(found).encode()
