"""`python -m drsai_backend` is `drsai`."""

from drsai_backend.cli import main

if __name__ == "__main__":
    main()
