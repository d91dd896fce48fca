"""Explanations of single configs."""
