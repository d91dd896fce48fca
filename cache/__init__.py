"""Tuned configs that come with asmtune; installed as `asmtune.shipped`."""
