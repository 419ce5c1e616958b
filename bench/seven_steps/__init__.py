"""The same seven steps in five systems: lines that a user writes, CPU seconds, what is missing."""
