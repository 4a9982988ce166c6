"""Rows of knowledge are read and written by synchronous functions of a `Session`: `stores`, their `files`, and
`indexing`, which has their chunks."""
