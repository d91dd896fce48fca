"""Tests of the launch path."""
