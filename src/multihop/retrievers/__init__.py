"""Retrievers: the protocol in `base`, a way of searching a file."""
