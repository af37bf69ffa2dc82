"""Many peers in one process on virtual time: the same machines, codec and methods, another shell."""
