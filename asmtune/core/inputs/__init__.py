"""What users type: sizes, shapes, assignments and plain functions, checked and read."""
