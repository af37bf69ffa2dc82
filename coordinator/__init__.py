"""Who is a member of a run. Never sees, holds or carries a parameter; imports no torch."""
