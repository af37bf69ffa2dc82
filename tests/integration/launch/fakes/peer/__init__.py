"""A fake of the package of this name: takes its place where PYTHONPATH says so."""
