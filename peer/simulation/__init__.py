"""Many peers in one process on virtual time: the same machines and methods, another shell."""
