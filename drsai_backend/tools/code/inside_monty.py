"""The part inside the process of `tools.apart` has code run in pydantic-monty. Nothing of the package is imported here.

The code's last value stays in the interpreter's own worker, where its `repr` is made and counted.
"""

import ast
import json

from pydantic_monty import CollectStreams, Monty, MontyCrashedError, MontyError

_SHOW = "if _ is not None:\n    print(repr(_))"
_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def main(data: bytes) -> bytes:
    """Run the code of a JSON object with `code`, `binary`, `limits` (of monty), `grace` (seconds), `output` (bytes).
    Returns one with `stdout`, `stderr` (each a little longer than `output` at most), `failed`, `late`, `died`,
    `is_shown`."""
    given = json.loads(data)
    most = given["output"]
    told: dict[str, object] = {"failed": False, "late": False, "died": False, "is_shown": True}
    # Each piece counts for more than its length; what is too long is cut here, and ends the run there.
    printed, error_text = CollectStreams(max_bytes=max(20 * most, 1_000_000)), ""
    try:
        with (
            Monty(
                binary_path=given["binary"], max_processes=1, max_checkouts_per_worker=1,
                feed_duration_limit_grace=given["grace"],
            ) as pool,
            pool.checkout(limits=given["limits"]) as session,
        ):  # fmt: skip
            code, has_value = _kept(given["code"])
            session.feed_run(code, print_callback=printed)
            if has_value:
                try:
                    session.feed_run(_SHOW, print_callback=printed)
                except MontyCrashedError:
                    raise
                except MontyError:
                    told["is_shown"] = False
    except MontyCrashedError as error:
        told["late" if error.timed_out else "died"] = True
    except MontyError as error:
        told["failed"], told["late"] = True, isinstance(error.exception(), TimeoutError)
        display = getattr(error, "display", None)
        error_text = str(error) if display is None else display()
    streams = {"stdout": "", "stderr": ""}
    for stream, text in printed.output:
        streams[stream] += text
    streams["stderr"] += error_text
    return json.dumps(told | {name: text[: most + 1] for name, text in streams.items()}).encode()


def _kept(code: str) -> tuple[str, bool]:
    """The code with the value of its last line kept as `_`, in the same lines; and whether it has one."""
    try:
        body = compile(code, "code", "exec", _FLAGS).body  # type: ignore[union-attr]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return code, False  # Monty says what is wrong.
    if not body or not isinstance(last := body[-1], ast.Expr):
        return code, False
    lines = code.splitlines(keepends=True)
    before, line = lines[: last.lineno - 1], lines[last.lineno - 1].encode()
    rest = b"".join([line[last.col_offset :], *(each.encode() for each in lines[last.lineno :])]).decode()
    return f"{''.join(before)}{line[: last.col_offset].decode()}_ = {rest}", True
