"""Client tools are the client's own: `definitions` (what a request offers and brings back), `policy` (what a team makes
of them), `workbench` (how the answering agent gets them)."""
