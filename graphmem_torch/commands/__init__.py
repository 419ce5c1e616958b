"""The commands of `graphmem`, one file each: a dataclass of its options with a `run` method."""
