"""The judge of spreading activation: many settings at once, and when the graph adds something."""
