"""Search over tools: terms, index and ranking; vectors and a reranker."""
