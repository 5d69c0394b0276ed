"""Language models: the protocol in `base`, a backend a file."""
