"""Ways into other frameworks; each is imported on demand and needs its own extra."""
