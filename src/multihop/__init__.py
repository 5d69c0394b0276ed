"""multihop answers questions whose evidence must be found in several hops."""

__version__ = "0.1.0"
