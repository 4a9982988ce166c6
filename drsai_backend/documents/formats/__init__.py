"""Formats have a module each, with a function that reads a file into a draft; `encodings` is for those that are text,
`package` for archives of XML."""
