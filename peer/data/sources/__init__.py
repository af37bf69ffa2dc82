"""Where images come from: one file per source, each with a `load` that returns a Domain."""
