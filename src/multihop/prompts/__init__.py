"""Prompts: demonstrations, their layout and fitting, sentences and answers in what comes back."""
