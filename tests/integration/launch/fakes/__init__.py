"""Packages that stand in for the real ones in other processes; never imported by a test."""
