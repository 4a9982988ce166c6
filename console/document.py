"""Prints the OpenAPI document, of which the console's types are made."""

from __future__ import annotations

import json
import sys

from drsai_backend import DrSai

sys.stdout.write(json.dumps(DrSai(database_url="sqlite://").app().openapi()))
