"""Teaches a model IM-RAG: cold start, reinforcement, the Answerer, and a critic that stops."""
