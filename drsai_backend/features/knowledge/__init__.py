"""Stores of knowledge have files that are searched: `/v1/vector_stores`, as OpenAI has them."""
