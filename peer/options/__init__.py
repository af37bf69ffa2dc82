"""Hyperparameters of every method, without the methods: nothing here imports torch.

A node reads, completes and compares options; only its trainer runs what they configure.
"""
