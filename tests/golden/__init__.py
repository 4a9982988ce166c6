"""What must not change unnoticed, one value a line: `test_golden.py` compares it with the files in `frozen`.

`pytest tests/golden --write-golden` writes the files anew. Their diff is the list of what has changed.
"""
