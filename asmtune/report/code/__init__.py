"""Code that people read: lines with class, source and weight, for terminals and pages."""
