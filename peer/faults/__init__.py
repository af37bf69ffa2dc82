"""Faults as data: what goes wrong in a run, when, and between whom. Torch-free, sans-IO.

table.py   `[[fault]]` tables, checked and typed
plan.py    what the faults that are given in rounds do: a pure function
"""
