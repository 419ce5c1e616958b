"""The judge of spreading activation: many settings at once, and the gain of the graph."""
