"""Teaching a small model the loop: examples out of annotated questions, and an adapter of them."""
