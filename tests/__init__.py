"""Tests that need the repository as a package."""
